"""A search for exceptions that end a node: faults by a seeded plan, in real daemons. `make faults`."""
