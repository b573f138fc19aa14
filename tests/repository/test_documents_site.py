"""The documents as a site: mkdocs builds it, strictly."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests import REPOSITORY


def test_docs__built_strictly__every_link_leads_somewhere_and_nothing_comes_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # of the theme's makers, about another project of theirs
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    pages = {path.relative_to(tmp_path).as_posix(): path.read_text("utf-8") for path in tmp_path.rglob("*.html")}
    assert {"index.html", "volunteer.html", "tutorials/school.html", "reference/specification.html"} <= set(pages)
    assert "doc-function" in pages["reference/api.html"] and "Manifest" in pages["reference/api.html"]
    assert 'id="sfnode-join"' in pages["reference/commands.html"]
    loaded = [
        link
        for page in pages.values()
        for link in re.findall(r'<(?:script|img|link)[^>]*?(?:src|href)="(https?:[^"]*)', page)
    ]
    assert loaded == []
