"""A laboratory: all coordinates of a small core from one forward pass a row (decision 32)."""
