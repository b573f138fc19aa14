"""What `sfnode doctor` finds."""
