"""python -m tests.simulation: see --help."""

from simulation.command import main

main()
