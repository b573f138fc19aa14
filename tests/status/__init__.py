"""What a node tells of itself: words, curves, rates, and whether it learns."""
