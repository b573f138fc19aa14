"""Writes ``protocol/vectors/*.json`` from the reference code: ``.venv/bin/python -m tests.vectors``.

Renew them only when the protocol itself changes: a difference that nobody meant is a bug, and other implementations
rely on these bytes.
"""

from __future__ import annotations

import sys

from tests.vectors.catalogue import FILES, FOLDER, rendered


def main() -> int:
    """Write every file and say what changed."""
    changed = []
    for name in FILES:
        path, content = FOLDER / name, rendered(name)
        if not path.exists() or path.read_text("utf-8") != content:
            path.write_text(content, "utf-8")
            changed.append(name)
    total = sum((FOLDER / name).stat().st_size for name in FILES)
    sys.stdout.write(f"{len(FILES)} files, {total:,} bytes; changed: {', '.join(changed) or 'none'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
