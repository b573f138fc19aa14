"""Many nodes on this machine, and their page."""
