"""A hook of mkdocs: pages of the site that lie elsewhere in the repository, and links that lead to them.

In the repository the documents link to each other as files do. The site holds the folder docs/, and these pages too.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_REPOSITORY = Path(__file__).resolve().parent.parent
_ELSEWHERE = {
    "protocol/SPEC.md": "reference/specification.md",
    "protocol/conformance/README.md": "reference/conformance.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "readme.md",
}
_LINK = re.compile(r"\[([^\]]*)\]\((?!https?://|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the decisions by their numbers."""
    pages = sorted(f"decisions/{path.name}" for path in Path(config.docs_dir, "decisions").glob("*.md"))
    assert config.nav is not None
    config.nav.append({"Decisions": pages})
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that lie elsewhere."""
    for source, page in _ELSEWHERE.items():
        files.append(File.generated(config, page, content=(_REPOSITORY / source).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links from one page to another as the site has them; of one to a file that it lacks only the words stay."""
    here = page.file.src_uri
    in_repository = next((source for source, name in _ELSEWHERE.items() if name == here), f"docs/{here}")

    def in_site(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(in_repository), link[2]))
        if target not in _ELSEWHERE and not target.startswith("docs/"):
            return link[1]
        name = _ELSEWHERE.get(target, target.removeprefix("docs/"))
        return f"[{link[1]}]({posixpath.relpath(name, posixpath.dirname(here) or '.')}{link[3] or ''})"

    return _LINK.sub(in_site, markdown)
