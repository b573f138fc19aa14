"""Door: `program`, and `awaited` for callers in trio. Here, and nowhere else, sfnode starts processes.

A child never has the current folder on its path, and ends when its parent is gone, even where that was killed hard.
"""
