"""python -m tests.mutants: see --help."""

from tests.mutants.command import main

main()
