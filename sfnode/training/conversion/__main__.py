"""The process of `sfnode.training.conversion`."""

from sfnode.training.conversion.process import main

main()
