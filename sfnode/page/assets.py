"""Read the static files of the page. They are hand-written and load nothing from other hosts."""

import base64
import hashlib
import json
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent / "static"
SCRIPTS = ("marks.js", "charts.js", "map.js", "page.js")  # in this order: each uses those before it
STYLE = "page.css"
INDEX = "index.html"
ICON = "icon.svg"
SERVED = (*SCRIPTS, STYLE, ICON)  # by name; the index is at the root
_DATA = '<script type="application/json" id="view"></script>'


@cache
def asset(name: str) -> bytes:
    """Return the content of one of the files named above; an empty name stands for the index."""
    return (_FOLDER / (name or INDEX)).read_bytes()


def single_file(sections: object) -> bytes:
    """Return one HTML file that shows ``sections``; its content policy permits only its own style, script and icon."""
    style = asset(STYLE).decode()
    script = "\n".join(asset(name).decode() for name in SCRIPTS)
    icon = f"data:image/svg+xml;base64,{base64.b64encode(asset(ICON)).decode()}"
    policy = (
        f"default-src 'none'; style-src '{_source(style)}'; script-src '{_source(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    text = asset(INDEX).decode()
    for name in SCRIPTS:
        text = _replaced(text, f'<script src="{name}" defer></script>\n', "")
    text = _replaced(text, "<!-- policy -->", f'<meta http-equiv="Content-Security-Policy" content="{policy}">')
    text = _replaced(text, f'<link rel="stylesheet" href="{STYLE}">', f"<style>{style}</style>")
    text = _replaced(text, f'href="{ICON}"', f'href="{icon}"')
    data = json.dumps(sections).replace("<", "\\u003c")  # names and log lines of strangers must not close the element
    text = _replaced(text, _DATA, f"{_DATA.removesuffix('</script>')}{data}</script>")
    return _replaced(text, "</body>", f"<script>{script}</script>\n</body>").encode()


def _replaced(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, old
    return text.replace(old, new)


def _source(text: str) -> str:
    """Return the hash by which a content policy permits this inline text."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
