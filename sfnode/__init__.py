"""sfnode: fine-tune one language model together by flooding signed projected gradients (SeedFlood, 2602.18181)."""

__version__ = "0.1.0"
