"""Door: `child_program`, and `async_child` for callers in trio. sfnode starts processes only through this package.

`operator_command` runs a command of the operator's own; what follows is of others. `stop_signals`: of every process.

A child never has the current folder on its path. It ends when its parent is gone, even if the parent was killed.
"""
