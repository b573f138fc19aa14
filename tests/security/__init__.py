"""What strangers must not be able to do."""
