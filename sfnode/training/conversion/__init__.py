"""Door: `convert`. Weights that are no safetensors become some, in a process of its own: strangers made them.

``python -m sfnode.training.conversion FORM SOURCE OUT``; `sfnode.model_files` starts it, waits for it and may kill it.
"""

from sfnode.training.conversion.process import convert

__all__ = ["convert"]
