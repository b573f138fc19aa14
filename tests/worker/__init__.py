"""The node's side of the training process."""
