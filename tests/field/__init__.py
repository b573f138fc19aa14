"""Door: `python -m tests.field`. Inputs as people have them: each works, or is refused in a sentence that helps."""
