"""python -m tests.netlab: see --help."""

from tests.netlab.command import main

main()
