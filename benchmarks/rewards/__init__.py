"""What a model learns from whether its answers were right, and what others learn from as many answers."""
