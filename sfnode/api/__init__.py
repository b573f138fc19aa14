"""Doors: `runs`, `authors`, `local_model`, `simulation`, `joining`. What other programs may use of sfnode."""
