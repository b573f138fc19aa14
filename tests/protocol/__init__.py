"""The pure core, part by part."""
