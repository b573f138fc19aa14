"""Tests of sfnode.children."""
