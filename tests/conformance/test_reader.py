"""The independent reader in JavaScript agrees with the reference on every vector, and on ledgers it never saw."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path

import pytest

from protocol.errors import Ignore
from protocol.run.manifest import Manifest, sign_manifest
from protocol.state.replica import Replica
from sfnode.network.policy import peer_of_author
from sfnode.run.run_address import parse_run_addresses
from tests import REPOSITORY
from tests.conformance import reader
from tests.conformance.switched import need_node
from tests.support.ledgers import seal
from tests.support.manifests import OWNER, small_manifest
from tests.vectors.runs import dense_run


@pytest.fixture(scope="module", autouse=True)
def _needs_node() -> None:
    need_node()


def test_reader__every_vector__agrees() -> None:
    finished = reader.run_reader("run.mjs")
    assert finished.returncode == 0, finished.stdout[-4_000:] + finished.stderr[-2_000:]
    assert finished.stdout.strip().splitlines()[-1].startswith("conformance: ")


def test_reader__worked_numbers_of_the_specification__agree() -> None:
    finished = reader.run_reader("selfcheck.mjs")
    assert finished.returncode == 0, finished.stdout[-4_000:]


def test_reader__a_vector_that_is_wrong__is_named(tmp_path: Path) -> None:
    vectors = REPOSITORY / "protocol" / "vectors"
    for path in vectors.glob("*.json"):
        (tmp_path / path.name).write_text('{"cases": []}')  # all of them are read by the test above
    text = (vectors / "ledgers.json").read_text()
    (tmp_path / "ledgers.json").write_text(text.replace('"SLOT_VOID"', '"ALREADY_HELD"', 1))
    finished = reader.run_reader("run.mjs", tmp_path)
    assert finished.returncode == 1 and "SLOT_VOID" in finished.stdout + finished.stderr
    assert "missing" not in finished.stdout


def test_reader__addresses_of_a_run_with_zeros_that_say_nothing__are_written_as_the_reference_does(
    tmp_path: Path,
) -> None:
    """It gave an address back as it was written, and the same node had two."""
    vectors = REPOSITORY / "protocol" / "vectors"
    for path in vectors.glob("*.json"):
        (tmp_path / path.name).write_text('{"cases": []}')
    peer = peer_of_author(OWNER.author)
    hosts = ("/ip4/203.0.113.7", "/ip6/2001:db8:0:0:0:0:0:1", "/ip6/2001:0db8:0:1:2:3:4:5", "/ip6/::ffff:203.0.113.7")
    text = f"sfnode:{'ab' * 32}@{','.join(f'{host}/tcp/04001/p2p/{peer}' for host in hosts)}"
    expected = {"run_id": "ab" * 32, "nodes": list(map(str, parse_run_addresses([text]).nodes))}
    case = {"name": "zeros", "function": "run_address", "input": {"text": text}, "expected": {"address": expected}}
    (tmp_path / "strings.json").write_text(json.dumps({"cases": [case]}))
    finished = reader.run_reader("run.mjs", tmp_path)
    assert "strings.json: 1 of 1" in finished.stdout, finished.stdout


@pytest.mark.parametrize(
    "manifest",
    [
        small_manifest(),
        small_manifest(core="rademacher", directions=2, local_steps=4, epoch_steps=8),
        small_manifest(core="rademacher", scalar="normalised", clip=127, directions=4),
        dense_run({}, steps=40),
    ],
    ids=["canonical", "rademacher", "normalised", "dense"],
)
def test_reader__records_in_any_order__comes_to_the_same_digests(tmp_path: Path, manifest: Manifest) -> None:
    records = _records(manifest)
    random.Random(7).shuffle(records)
    replica = Replica(manifest)
    for record in records:
        with suppress(Ignore):
            replica.add(record)
    found = reader.replayed(sign_manifest(manifest, OWNER).encode(), records, tmp_path)
    assert replica.ledger.void_slots == 10
    assert {name: found[name] for name in ("run_id", "updates", "void_slots", "root", "state_digest")} == {
        "run_id": manifest.run_id.hex(),
        "updates": replica.ledger.updates,
        "void_slots": 10,
        "root": replica.ledger.root().hex(),
        "state_digest": replica.state_digest().hex(),
    }


def _records(manifest: Manifest) -> list[bytes]:
    """Five authors in every round; one of them sends two payloads for half of its slots; some records come twice."""
    method = manifest.method
    is_raw = method.scalar.value == "raw"
    dense = ((2, *[9] * 8), (3, *[-5] * 8))
    plain = (
        dense
        if method.is_dense
        else (None if is_raw else (32,) * method.scalars, None if is_raw else (-32,) * method.scalars)
    )
    steps = range(0, manifest.steps, method.local_steps)
    records = [seal(manifest, author, step, *(plain[0] or ())) for author in range(5) for step in steps]
    records += [seal(manifest, 4, step, *(plain[1] or (5,) * method.scalars)) for step in list(steps)[:10]]
    return records + records[::9]
