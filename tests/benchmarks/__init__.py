"""The benchmarks run and report what they promise."""
