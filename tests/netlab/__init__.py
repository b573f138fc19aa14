"""Real networks: sfnode processes in network namespaces, joined by veth cables, broken on purpose.

`python -m tests.netlab --help`.
"""
