"""Door: `convert`. Weights that are no safetensors become some, in a process of its own: strangers made them.

`sfnode.model_files` starts it as FORM SOURCE OUT, waits for it and may kill it.
"""

from sfnode.training.conversion.process import convert

__all__ = ["convert"]
