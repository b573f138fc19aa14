"""Tests of sfnode.privacy."""
