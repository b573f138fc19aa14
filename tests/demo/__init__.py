"""The embedded model and data."""
