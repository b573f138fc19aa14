"""The command line as people and programs use it."""
