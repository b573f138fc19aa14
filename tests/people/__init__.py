"""Door: `python -m tests.people`. What a person who starts with sfnode waits for, by a stopwatch."""
