"""The checked-in fuzz inputs, without atheris: none escapes, they reach every door, and the checks can fail."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType, SimpleNamespace
from unittest.mock import ANY

import pytest

from protocol.wire import CLASSES, Ping
from tests import REPOSITORY
from tests.fuzz.__main__ import main
from tests.fuzz.catalogue import BY_NAME, ENTRIES, Entry, bounded, corpus_files, load
from tests.fuzz.schema import MESSAGES, reason_to_reject
from tests.repository.architecture import functions, read_modules

CORPUS_BYTES_MAX = 300_000


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_fuzz_corpus__every_checked_in_input__passes(entry: Entry) -> None:
    check = bounded(load(entry).check)
    for path in corpus_files(entry):
        try:
            check(path.read_bytes())
        except Exception as error:
            error.add_note(f"replay: python -m tests.fuzz --target {entry.name} --input {path}")
            raise


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_fuzz_corpus__seeds__are_what_the_target_makes_of_valid_objects(entry: Entry) -> None:
    cure = f"python -m tests.fuzz --target {entry.name} --renew"
    seeds = list(load(entry).seeds())
    checked_in = [path.read_bytes() for path in corpus_files(entry) if path.name.startswith("seed-")]
    assert len(seeds) == len(checked_in) >= 3, cure
    assert entry.name == "store" or seeds == checked_in, cure  # SQLite's version is written into its files
    assert max(map(len, seeds)) <= entry.bytes_max


def test_fuzz_corpus__size__stays_small() -> None:
    assert sum(path.stat().st_size for entry in ENTRIES for path in corpus_files(entry)) <= CORPUS_BYTES_MAX


def _untrusted_functions() -> set[tuple[str, str]]:
    """(module, function) of everything that says in its name that a peer or a file feeds it."""
    # A simulated network hears only itself: what sfnode.api decodes goes on to the function that is fuzzed.
    modules = [each for each in read_modules("protocol", "sfnode") if not each.is_in("sfnode.api")]
    named = ((module.name, function.name) for module in modules for function in functions(module))
    return {place for place in named if place[1].endswith("_untrusted")}


def _spread(paths: list[Path], count: int) -> list[Path]:
    """About so many of them, evenly."""
    return paths[:: max(1, len(paths) // count)]


def test_fuzz_corpus__every_untrusted_function__is_called_by_it() -> None:
    wanted, called = _untrusted_functions(), set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_name.endswith("_untrusted"):
            called.add((str(frame.f_globals["__name__"]), frame.f_code.co_name))

    chosen = [(entry, path) for entry in ENTRIES for path in _spread(corpus_files(entry), 24)]
    inputs = [(load(entry).check, path.read_bytes()) for entry, path in chosen]
    previous = sys.getprofile()
    sys.setprofile(note)
    try:
        for check, data in inputs:
            check(data)
    finally:
        sys.setprofile(previous)
    assert len(wanted) >= 10
    assert wanted <= called, f"no target reaches {sorted(wanted - called)}"


def test_schema__kinds__are_those_of_the_decoder() -> None:
    assert list(MESSAGES) == list(range(len(CLASSES)))
    assert reason_to_reject(b"\x92\x01\x05") is None


# --- the checks can fail: a planted fault makes some checked-in input escape

Fault = Callable[[pytest.MonkeyPatch], None]


def _nothing(*_arguments: object, **_named: object) -> None:
    """Instead of a check."""


def _replaced(place: str, value: object) -> Fault:
    return lambda monkeypatch: monkeypatch.setattr(place, value)


_ANY_HASH = SimpleNamespace(sha256=lambda data: SimpleNamespace(hexdigest=lambda: ANY))  # equal to whatever is wanted

FAULTS: tuple[tuple[str, Fault], ...] = (
    ("wire", _replaced("protocol.wire.limits.FRAME_BYTES_MAX", 64)),
    ("rows", _replaced("protocol.schema._check_bound", _nothing)),
    ("structure", _replaced("protocol.schema.has_half_pair", lambda text: False)),
    ("envelope", _replaced("protocol.ledger.envelope._check_energy", _nothing)),
    ("envelope", _replaced("protocol.ledger.envelope.is_signed", lambda *_: True)),
    ("manifest", _replaced("protocol.run.manifest.is_signed", lambda *_: True)),
    ("manifest-fields", _replaced("protocol.run.manifest._broken_rules", lambda manifest: [])),
    ("manifest-fields", _replaced("protocol.run.manifest.broken_method_rules", lambda method: [])),
    ("manifest-fields", _replaced("protocol.run.manifest.broken_task_rules", lambda task: [])),
    ("basis", _replaced("protocol.subspace.basis_file.hashlib", _ANY_HASH)),
    ("basis", _replaced("protocol.subspace.basis_file.basis_bytes", lambda manifest: 30)),
    ("frames", _replaced("protocol.framing.FrameParser.feed_untrusted", _nothing)),
    ("channel", _replaced("sfnode.network.sessions.channel.decode_untrusted", lambda payload: Ping(nonce=0))),
    ("handshake", _replaced("sfnode.network.sessions.handshake._check", lambda own, theirs, channel: theirs)),
    ("statement", _replaced("protocol.ledger.statements.is_signed", lambda *_: True)),
    ("statement", _replaced("protocol.ledger.statements.is_author_key", lambda key: True)),
    ("audit", _replaced("protocol.documents.audit_report.is_signed", lambda *_: True)),
    ("audit", _replaced("protocol.documents.audit_report.EnvelopeCodec.check_signed", _nothing)),
    ("log", _replaced("protocol.documents.log_file.is_signed", lambda *_: True)),
    ("log", _replaced("protocol.documents.log_file._STEP", slice(None))),
    ("log", _replaced("protocol.documents.log_file.Ignore", ZeroDivisionError)),
    (
        "handshake",
        _replaced("sfnode.network.sessions.file_download.Download._checked", lambda self: bytes(self._received)),
    ),
    ("mdns", _replaced("sfnode.network.discovery.mdns_packets.bounds.MDNS_ADDRESSES_MAX", 9)),
    ("mdns", _replaced("sfnode.network.discovery.mdns_packets._texts", lambda data: [data.decode("latin-1")])),
    ("reach", _replaced("sfnode.network.transport.reachability.DialBack", range(5))),
    ("addresses", _replaced("sfnode.network.policy.addresses._check_host", lambda kind, host: host)),
    ("exchange", _replaced("sfnode.network.policy.author_of_peer", _nothing)),
    ("known-peers", _replaced("sfnode.network.saved_peers.Malformed", ZeroDivisionError)),
    ("worker", _replaced("sfnode.worker_protocol.messages.Malformed", ZeroDivisionError)),
    ("store", _replaced("sfnode.storage.record_store.sqlite3.Error", ZeroDivisionError)),
    ("replay", _replaced("sfnode.storage.stored_records.Reject", ZeroDivisionError)),
    ("ledger", _replaced("protocol.state.replica.Coefficients.remove", _nothing)),
    ("ledger", _replaced("protocol.ledger.ledger.Ledger.has_room_for", lambda self, author: True)),
    ("answer", _replaced("protocol.sync.anti_entropy.islice", lambda items, count: items)),
    ("sync", _replaced("protocol.sync.anti_entropy.SyncSession._differing", lambda *_: 1)),
    ("sync", _replaced("protocol.sync.anti_entropy.SyncSession._release", _nothing)),
    ("node", _replaced("protocol.node.intake.Intake.keep", _nothing)),
    ("node", _replaced("protocol.sync.comparison_schedule.Synchroniser.tick", _nothing)),
)


@pytest.mark.parametrize(("name", "plant"), FAULTS, ids=[f"{index}-{fault[0]}" for index, fault in enumerate(FAULTS)])
def test_fuzz_target__planted_fault__is_found_by_the_corpus(
    name: str, plant: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = BY_NAME[name]
    check, inputs = load(entry).check, [path.read_bytes() for path in corpus_files(entry)]
    plant(monkeypatch)
    assert any(_escapes(check, data) for data in inputs)


def _escapes(check: Callable[[bytes], None], data: bytes) -> bool:
    with suppress(Exception):  # any exception is a finding
        check(data)
        return False
    return True


# --- the command


def _fuzz(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.fuzz", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="needs atheris (Linux on x86-64 only)")
def test_fuzz__some_executions_of_one_target__a_line_of_figures_and_zero() -> None:
    done = _fuzz("--target", "frames", "--executions", "3000")
    assert done.returncode == 0, done.stdout + done.stderr
    words = done.stdout.splitlines()[-1].split()
    assert words[0] == "fuzz:" and int(words[1].replace(",", "")) >= 3_000
    assert done.stdout.endswith("executions of 1 targets, none escaped\n")


def test_fuzz__one_input__passes_or_its_exception_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "input"
    path.write_bytes(next(iter(load(BY_NAME["frames"]).seeds())))
    monkeypatch.setattr(sys, "argv", ["fuzz", "--target", "frames", "--input", str(path)])
    assert main() == 0
    monkeypatch.setattr("protocol.framing.FrameParser.feed_untrusted", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):  # main catches none: Python prints it and ends with 1
        main()


def _imports(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield ast.unparse(node)


def test_fuzz_targets__imports__leave_atheris_to_the_engine() -> None:
    """So that the corpus runs where atheris does not."""
    folder = REPOSITORY / "tests" / "fuzz"
    using = {path.stem for path in folder.glob("*.py") if any("atheris" in line for line in _imports(path.read_text()))}
    assert using == {"engine"}
