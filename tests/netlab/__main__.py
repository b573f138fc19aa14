"""python -m tests.netlab: see --help."""

from netlab.command import main

main()
