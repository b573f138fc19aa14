"""The JSON of a status: flat, with the keys that programs read, and strict when it is read back."""

from __future__ import annotations

import json
import typing
from collections import Counter
from dataclasses import fields, is_dataclass

import pytest

from protocol.schema import Malformed
from sfnode.status import Status, StatusDetail
from tests.support.statuses import STATUS

# Programs of others read these. One more is welcome; none may go.
KEYS = (
    "run run_id author pid step steps is_finished is_over equal_peers full_peers differing_peers awaited_authors "
    "updates void_slots authors own_updates skipped_steps catching_up peers expects_peers is_training "
    "paused trouble unreached loss accuracy forward_rows worker_restarts ledger_root state_digest "
    "bytes_in bytes_out payload_bytes rejected ignored model join join_string admission is_admitted "
    "is_invitation_used excluded_from authors_excluded own_name memory disk_free_bytes time detail slips"
)
DETAIL_KEYS = (
    "uptime_s run_step lag_steps own_updates steps_per_s left_s directions directions_max round_s bytes_in_per_s "
    "bytes_out_per_s rows_per_s processes_bytes peers evaluations best gain losses news"
)
PEER_KEYS = "peer address is_outbound agent rtt_ms score bytes_in bytes_out updates is_equal own_updates_min name"


def plain() -> dict[str, typing.Any]:
    """As a program reads it."""
    found: dict[str, typing.Any] = json.loads(json.dumps(STATUS.to_json()))
    return found


def test_status__as_json__has_the_keys_that_programs_read() -> None:
    assert set(KEYS.split()) <= set(plain())
    assert set(DETAIL_KEYS.split()) == set(plain()["detail"])
    assert set(PEER_KEYS.split()) == set(plain()["detail"]["peers"][0])
    assert set(plain()["memory"]) == {"bytes_max", "resident_bytes", "is_full", "let_go"}
    assert plain()["slips"] == {"count": 0, "last": ""}


@pytest.mark.parametrize("kind", [Status, StatusDetail])
def test_status__sections__have_no_name_in_common(kind: type) -> None:
    """Side by side, one would hide the other."""
    names: Counter[str] = Counter()
    for name, declared in typing.get_type_hints(kind).items():
        names.update(each.name for each in fields(declared)) if is_dataclass(declared) else names.update([name])
    assert max(names.values()) == 1, names


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"step": "5"}, "status.node.step: '5' is not of type int"),
        ({"odd": 1}, "status: unknown field 'odd'"),
        ({"detail": {**plain()["detail"], "odd": 1}}, "status.detail: unknown field 'odd'"),
        ({"detail": []}, "status.detail is not a structure"),
        ({"memory": {"bytes_max": 1}}, "status.network.memory: field 'resident_bytes' is missing"),
    ],
)
def test_status__wrong_value__is_named(changes: dict[str, object], words: str) -> None:
    with pytest.raises(Malformed, match=words.replace("[", "\\[")):
        Status.from_json_untrusted(plain() | changes, "status")


def test_status__without_a_field__says_which() -> None:
    less = plain()
    del less["loss"]
    with pytest.raises(Malformed, match=r"status.training: field 'loss' is missing"):
        Status.from_json_untrusted(less, "status")
