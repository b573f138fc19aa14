"""The data directory."""
