"""Target ``structure``: plain data of any shape as each declared class gives Malformed or an instance, nothing else."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from protocol.run.manifest import Manifest, TensorSpec
from protocol.run.method import Method, Schedule
from protocol.run.model import ModelSpec
from protocol.run.task import TaskSpec
from protocol.schema import Malformed, from_plain_untrusted, to_plain
from protocol.wire import AuthorHoldings, Authors, Head, Hello, Peers, PullRequest
from sfnode.network.policy.address_book import PeerRow
from sfnode.worker_protocol.messages import Estimated, OpenSession, SetCoefficients, WorkerFailure
from tests.fuzz.catalogue import Target
from tests.fuzz.choices import Choices
from tests.fuzz.verdicts import check_text
from tests.support.manifests import manifest_data

DATACLASSES: tuple[type[Any], ...] = (
    Manifest,
    Method,
    ModelSpec,
    Schedule,
    TaskSpec,
    TensorSpec,
    AuthorHoldings,
    Authors,
    Head,
    Hello,
    Peers,
    PullRequest,
    PeerRow,
    Estimated,
    OpenSession,
    SetCoefficients,
    WorkerFailure,
)
_DEPTH_MAX = 4
_HALF_PAIR = "\ud800"
_KEYS = ("rows", "cols", "name", "kind", "id", "peer", "weights", "sha256", "rank", "x", _HALF_PAIR)
_LEAVES: tuple[object, ...] = (
    0,
    1,
    -1,
    32,
    2**32,
    2**64,
    10**400,
    True,
    False,
    None,
    0.5,
    math.inf,
    "",
    "matrix",
    "raw",
    "a",
    "x" * 300,
    _HALF_PAIR,
    b"",
    bytes(16),
    bytes(32),
    bytes(128),
)


def check_structure(data: bytes) -> None:
    """Malformed with a short text that can be shown, or an instance whose plain form gives the same instance."""
    choices = Choices(data)
    declared = choices.pick(DATACLASSES)
    plain = _plain(choices, 0) if choices.one_in(4) else _near(_valid(declared), choices, 0)
    verdicts = [_verdict(declared, plain) for _ in range(2)]
    assert verdicts[0] == verdicts[1]


def _verdict(declared: type[Any], plain: object) -> str:
    try:
        made = from_plain_untrusted(declared, plain, "it")
    except Malformed as error:
        return check_text(error)
    for as_rows in (False, True):
        again = from_plain_untrusted(declared, to_plain(made, as_rows=as_rows), "it")
        assert again == made and repr(again) == repr(made)  # repr: 1 and True are equal, but not the same
    for text in _texts(to_plain(made, as_rows=True)):
        text.encode()  # any file and terminal can take it
    return repr(made)


def _texts(plain: object) -> Iterator[str]:
    if isinstance(plain, str):
        yield plain
    if isinstance(plain, list):
        for entry in plain:
            yield from _texts(entry)


def _valid(declared: type[Any]) -> object:
    """Plain data that fits one of the classes; of others their field names with something."""
    data = manifest_data()
    parts: dict[type[Any], object] = {
        Manifest: data,
        Method: data["method"],
        ModelSpec: data["model"],
        Schedule: data["schedule"],
        TaskSpec: data["task"],
        TensorSpec: data["tensors"][0],
        PeerRow: {"peer": "x", "addresses": ["/a"], "last_success_unix_ms": 1, "failures": 0, "is_bootstrap": True},
        Estimated: [1, [5, -5], 0.5, 2],
        WorkerFailure: ["memory", "text"],
        AuthorHoldings: [bytes(32), bytes(16), bytes(128), bytes(128)],
        Authors: [1, 0, [[bytes(32), bytes(16), bytes(128), bytes(128)]], True],
        Head: [bytes(32), bytes(32), 5, 5],
        Hello: [1, bytes(32), "a", ["/b"], 0],
        Peers: [[["a", ["/b"]]]],
        PullRequest: [1, [[0, bytes(32), bytes(128)]]],
        OpenSession: [b"m", ["model", None, "eval", ["cpu", "fp32", None], None, None, None, []], bytes(32)],
        SetCoefficients: [[[0, bytes(8)]]],
    }
    return parts[declared]


def _near(value: object, choices: Choices, depth: int) -> object:
    """The value with, here and there, a part replaced, removed or added."""
    if choices.one_in(24):
        return _plain(choices, depth)
    if isinstance(value, dict):
        kept = {key: _near(entry, choices, depth + 1) for key, entry in value.items() if not choices.one_in(64)}
        return {**kept, choices.pick(_KEYS): _plain(choices, depth + 1)} if choices.one_in(32) else kept
    if isinstance(value, list):
        kept_items = [_near(entry, choices, depth + 1) for entry in value if not choices.one_in(64)]
        return kept_items * choices.pick((0, 2, 200)) if choices.one_in(64) else kept_items
    return value


def _plain(choices: Choices, depth: int) -> object:
    shape = choices.byte() % 8
    if depth >= _DEPTH_MAX or shape < 5:
        return choices.pick(_LEAVES)
    count = choices.below(5)
    if shape == 5:
        return {choices.pick(_KEYS): _plain(choices, depth + 1) for _ in range(count)}
    return [_plain(choices, depth + 1) for _ in range(count)]


def structure_seeds() -> Iterator[bytes]:
    """Each class: as it is, and with its parts disturbed."""
    for number in range(len(DATACLASSES)):
        yield bytes([number, 0])
        yield bytes([number, 0]) + bytes((number + index * 5) % 256 for index in range(48))
        yield bytes([number, 1]) + json.dumps(number).encode() * 8


TARGETS = {"structure": Target(check=check_structure, seeds=structure_seeds)}
