"""python -m tests.mutants: see --help."""

from mutants.command import main

main()
