"""Write commands as text that can be pasted into a shell. Every command that sfnode prints comes from here."""

import shlex


def pasteable(command: str, *words: object) -> str:
    """Return ``command``, which is taken as it is, followed by ``words``, each quoted where a shell needs it."""
    return " ".join([command, *(shlex.quote(str(word)) for word in words)])
