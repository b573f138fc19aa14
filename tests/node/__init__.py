"""The running node, part by part."""
