"""The sfnode protocol: pure rules shared by every node, and the core that follows them.

Nothing in this package touches a file, a socket, a clock, a thread, a logger or a global random generator.
``SPEC.md`` in this folder states every byte, rule and bound that the code enforces.
"""
