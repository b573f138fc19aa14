"""`make data`: from a stand-in of the public repositories to the files that the benchmarks read, or to none of them."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from benchmarks import get_data
from protocol.errors import OperatorError

HEAD = "sentence\tlabel\n"
SOURCES = {
    "alps/SST-2/train.tsv": f"{HEAD}a fine film \t1\n",
    "alps/SST-2/dev.tsv": f"{HEAD}no good \t0\nso so\t0\n",
    "alps/SST-2/test.tsv": f"{HEAD}it 's good . \t1\n",
    "alps/agnews/dev.tsv": "both\tWorld\nnew \tSci/Tech\n",
    "alps/agnews/test.tsv": "both\tWorld\n",
    "rte/train.tsv": "index\tsentence1\tsentence2\tlabel\n2\tIt rained.\tIt was wet.\tentailment\n",
    "rte/val.tsv": "1\tIt rained.\tIt was dry.\tnot_entailment\n",
    "rte/dev.tsv": "index\tsentence1\tsentence2\tlabel\n0\tA\tB\tentailment\n",
    "conv/raw/TREC.train": "NUM:dist How far is it ?\nHUM:ind Who is \xe9 ?\n",
    "conv/raw/TREC.test": "LOC:city Where ?\n",
}
CHOSEN = {"sst2/train_full_67349": {"sst2/train_1024": [2, 0]}}
# Some of what comes of it, written by hand.
EXPECTED = {
    "sst2/train_1024.jsonl": ['{"sentence": "so so", "label": 0}', '{"sentence": "a fine film", "label": 1}'],
    "rte/train_full_2490.jsonl.gz": [
        '{"premise": "It rained.", "hypothesis": "It was dry.", "label": 1}',
        '{"premise": "It rained.", "hypothesis": "It was wet.", "label": 0}',
    ],
    "trec/train_full_5452.jsonl.gz": [
        '{"text": "How far is it ?", "label": 5, "fine": "NUM:dist"}',
        '{"text": "Who is \xe9 ?", "label": 3, "fine": "HUM:ind"}',
    ],
    "agnews/train_pool_9991.jsonl.gz": ['{"text": "new", "label": 3}'],
}


@pytest.fixture
def served() -> Iterator[tuple[str, dict[str, str]]]:
    """The address of a server on this machine, and what it serves."""
    texts = dict(SOURCES)

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            places = {f"/{path}/": name for name, path in get_data.PLACES.items()}
            found = next(f"{name}/{self.path[len(path) :]}" for path, name in places.items() if path in self.path)
            self.send_response(200 if found in texts else 404)
            self.end_headers()
            self.wfile.write(texts.get(found, "").encode("latin-1"))

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", texts
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Chosen rows and hashes of the sources above."""
    chosen, hashes = tmp_path / "chosen.json", tmp_path / "hashes.json"
    chosen.write_text(json.dumps(CHOSEN), "utf-8")
    monkeypatch.setattr(get_data, "_CHOSEN", chosen)
    monkeypatch.setattr(get_data, "_HASHES", hashes)
    files = get_data.all_files(lambda name: [line for line in SOURCES[name].split("\n") if line])
    texts = {name: "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows) for name, rows in files.items()}
    hashes.write_text(json.dumps({k: hashlib.sha256(v.encode()).hexdigest() for k, v in texts.items()}), "utf-8")


def test_get_data__sources_as_they_were__become_the_files_that_are_read(
    served: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    written = get_data.write_all(tmp_path / "data", served[0])
    assert len(written) == 9
    for name, rows in EXPECTED.items():
        data = (tmp_path / "data" / name).read_bytes()
        assert (gzip.decompress(data) if name.endswith(".gz") else data).decode() == "\n".join(rows) + "\n"


def test_get_data__called_again__fetches_nothing_unless_a_file_is_not_whole(
    served: tuple[str, dict[str, str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that was interrupted left some files, which nobody could tell from all of them."""
    written = get_data.write_all(tmp_path / "data", served[0])
    whole = {path: path.read_bytes() for path in written}
    assert capsys.readouterr().err.count("fetching ") == len(SOURCES)
    assert set(get_data.write_all(tmp_path / "data", served[0])) == set(written) and not capsys.readouterr().err
    for path, data in whole.items():
        path.write_bytes(data[:-9])
        get_data.write_all(tmp_path / "data", served[0])
        assert path.read_bytes() == data


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ("a fine firm \t1\n", "sst2/train_full_67349 is not what the benchmarks were measured with"),
        ("a fine film\n", "not in its known form"),
        (None, "cannot be fetched: HTTP Error 404"),
    ],
)
def test_get_data__source_that_has_changed__is_refused_and_nothing_is_written(
    changed: str | None, reason: str, served: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    address, texts = served
    if changed is None:
        del texts["alps/SST-2/train.tsv"]
    else:
        texts["alps/SST-2/train.tsv"] = HEAD + changed
    with pytest.raises(OperatorError, match=reason):
        get_data.write_all(tmp_path / "data", address)
    assert not (tmp_path / "data").exists()


def test_chosen_rows__of_each_task__train_and_choose_on_different_rows_and_all_have_hashes() -> None:
    here = Path(get_data.__file__).parent
    chosen, hashes = (json.loads((here / name).read_text("utf-8")) for name in ("chosen_rows.json", "data_files.json"))
    for whole, parts in chosen.items():
        picked = [at for rows in parts.values() for at in rows]
        assert len(set(picked)) == len(picked), whole
        assert all(len(rows) == int(name.rpartition("_")[2]) for name, rows in parts.items())
        assert {whole, *parts} <= hashes.keys()
