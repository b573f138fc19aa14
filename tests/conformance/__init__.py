"""The independent reader in JavaScript, and the vectors that it must pass."""
