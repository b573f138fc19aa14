"""python -m tests.top.recording --out docs/top.svg: what `sfnode top` shows of a node that joins late, as a film.

The node, the run and every picture are real: a testnet of the embedded model, looked at once a second.
"""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from sfnode.status import thinned
from sfnode.storage.data_directory import DataDirectory
from sfnode.top.screen import NodeView, draw, look

COLUMNS: Final = 80
LINES: Final = 19
# The picture must not load a font from the internet.
SVG_FORMAT: Final = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
PICTURES_MAX: Final = 16  # a slow machine has more seconds
PICTURE_S: Final = 1.0
LAST_PICTURE_S: Final = 5.0
_LATE: Final = "late0"
_SIZE: Final = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')


@click.command()
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Write the film to this SVG file.")
@click.option("--steps", default=240, show_default=True, help="Let each node of the testnet make this many steps.")
def main(out: Path, steps: int) -> None:
    """Film a late node of a testnet, from its start to its end."""
    out = out.resolve()
    command = [sys.executable, "-m", "sfnode", "testnet", "--nodes", "3", "--late", "1", "--steps", str(steps)]
    # The screen names the directory: from inside, its name is short.
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        subprocess.Popen([*command, "--dir", folder], stdout=subprocess.DEVNULL) as testnet,
    ):
        pictures = list(_film(testnet, Path(_LATE)))
    pictures = list(thinned(pictures, PICTURES_MAX))
    out.write_text(film_of(pictures), "utf-8")
    click.echo(f"{len(pictures)} pictures, {out.stat().st_size:,} bytes: {out}")


def _film(testnet: subprocess.Popen[bytes], directory: Path) -> Iterator[str]:
    """A picture for each second in which something else is to be seen."""
    view, last = NodeView(data_dir=DataDirectory(directory)), ""
    while testnet.poll() is None:
        view = look(view)
        if view.status is not None:
            picture = picture_of(view)
            if picture != last:
                yield picture
            last = picture
        time.sleep(PICTURE_S)


def picture_of(view: NodeView) -> str:
    """The screen of one node as an SVG document."""
    console = Console(record=True, width=COLUMNS, height=LINES, file=io.StringIO(), force_terminal=True)
    console.print(draw([view]), height=LINES)
    return console.export_svg(title="sfnode top", code_format=SVG_FORMAT)


def film_of(pictures: Sequence[str]) -> str:
    """One SVG document that shows the pictures one after the other, for ever; the last one where motion is unwanted."""
    sizes = [tuple(map(float, found.groups())) for each in pictures if (found := _SIZE.search(each))]
    width, height = max(size[0] for size in sizes), max(size[1] for size in sizes)
    length_s = PICTURE_S * (len(pictures) - 1) + LAST_PICTURE_S
    styles, bodies = [], []
    for number, picture in enumerate(pictures):
        start, is_last = 100 * number * PICTURE_S / length_s, number == len(pictures) - 1
        end = 100.0 if is_last else 100 * (number + 1) * PICTURE_S / length_s
        styles.append(
            f"@keyframes p{number} {{ 0%, {start:.3f}% {{ visibility: hidden }} "
            f"{start:.3f}%, {end:.3f}% {{ visibility: visible }} {end:.3f}%, 100% {{ visibility: hidden }} }}\n"
            f".p{number} {{ visibility: {'visible' if is_last else 'hidden'} }}\n"
            f"@media (prefers-reduced-motion: no-preference) "
            f"{{ .p{number} {{ animation: p{number} {length_s}s step-end infinite }} }}"
        )
        on_top = picture.replace("<svg ", '<svg preserveAspectRatio="xMidYMin" ', 1)
        bodies.append(f'<g class="p{number}">{on_top}</g>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">\n<style>\n'
        + "\n".join(styles)
        + "\n</style>\n"
        + "\n".join(bodies)
        + "\n</svg>\n"
    )


if __name__ == "__main__":
    main()
