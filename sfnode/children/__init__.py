"""Door: `program`, and `awaited` for callers in trio. sfnode starts processes only through this package.

A child never has the current folder on its path. It ends when its parent is gone, even if the parent was killed.
"""
