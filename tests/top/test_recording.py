"""The film in the README is made of the real screens, one after the other, and is one well-formed SVG document."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from sfnode.storage.data_directory import DataDirectory
from sfnode.top.screen import NodeView
from tests.support.statuses import STATUS, changed
from tests.top.recording import film_of, picture_of

SVG = "{http://www.w3.org/2000/svg}"

DOCS = Path(__file__).parents[2] / "docs"


def test_film__of_the_documents__cuts_no_word() -> None:
    assert "…" not in (DOCS / "top.svg").read_text("utf-8")


def test_film__two_screens__holds_both_and_stands_still_at_the_last_one() -> None:
    node = DataDirectory(Path("/tmp/node"))
    views = [NodeView(data_dir=node, status=changed(STATUS, step=step)) for step in (3, 120)]
    film = film_of([picture_of(view) for view in views])
    root = ElementTree.fromstring(film)
    shown = ["".join(group.itertext()) for group in root.findall(f"{SVG}g")]
    assert ["step\xa03/500" in text for text in shown] == [True, False]
    assert ["step\xa0120/500" in text for text in shown] == [False, True]
    assert ".p0 { visibility: hidden }" in film and ".p1 { visibility: visible }" in film
    assert "prefers-reduced-motion: no-preference" in film
    assert "http" not in film.replace("http://www.w3.org/", "").replace("https://www.textualize.io", "")
