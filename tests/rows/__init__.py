"""Tests of `sfnode.rows`: the files that people have, and what is made of their rows."""
