"""Coverage-guided fuzzing of everything that reads bytes from a peer or a file: ``python -m tests.fuzz --help``."""
