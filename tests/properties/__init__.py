"""Promises under any sequence of inputs, drawn by Hypothesis."""
