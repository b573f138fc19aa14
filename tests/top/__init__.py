"""The live view, `sfnode top`."""
