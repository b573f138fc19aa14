"""make architectures: every causal language model of transformers in a tiny shape, and what sfnode can do with it."""
