"""How often an audit accuses the honest, and how soon it finds a cheat: ``python -m benchmarks.audit_honesty``."""
