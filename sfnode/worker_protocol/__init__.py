"""What a node and its training process agree on: the messages between them, and the precisions. No torch, no trio."""
