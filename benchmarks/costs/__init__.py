"""What parts of sfnode cost on this machine, each against what one would use instead: `python -m benchmarks.costs`."""
