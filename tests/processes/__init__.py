"""Real daemons: sockets, signals, kills."""
