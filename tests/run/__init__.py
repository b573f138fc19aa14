"""What an owner or a joiner prepares."""
