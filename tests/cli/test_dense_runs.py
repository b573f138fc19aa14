"""Commands about a run whose messages hold a dense core: records, authors and what the manifest says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from protocol.run.manifest import sign_manifest
from tests.cli.test_admission import ALICE, BOB
from tests.cli.test_run_show import held_in
from tests.support.cli_calls import call
from tests.support.ledgers import seal
from tests.support.manifests import OWNER, small_manifest

DENSE = small_manifest(core="dense", alpha_exp=-20, quantum_exp=-4)
ZEROS = (0,) * 15


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Alice moved at step 5; Bob measured beside it, of one row and of three."""
    records = [
        seal(DENSE, 1, 5, 8, 10, *ZEROS),
        seal(DENSE, 2, 4, 1, -60, *ZEROS),
        seal(DENSE, 2, 6, 3, 20, *ZEROS),
    ]
    return held_in(tmp_path / "node", DENSE, records)


def test_log_show__dense_messages__says_their_rows_and_their_numbers(directory: Path) -> None:
    first, second, _ = call("log", "show", directory).stdout.splitlines()
    assert first.split()[3:6] == ["1", "row:", "-60"] and second.split()[3:7] == ["8", "rows:", "+10", "+0"]
    told = json.loads(call("log", "show", directory, "--json").stdout.splitlines()[1])
    assert (told["rows"], told["scalars"]) == (8, [10, *ZEROS])


def test_run_show__dense_authors__have_what_leaving_them_out_does(directory: Path) -> None:
    bob, alice = json.loads(call("run", "show", directory, "--json").stdout)["authors"]
    assert (bob["author"], alice["author"]) == (BOB.hex(), ALICE.hex())
    slope = (3 * 20 - 60) / 4
    assert alice["left_out"]["change"] == pytest.approx(2.0**-24 * DENSE.weight(5) * 5 * slope, abs=1e-9)
    assert alice["left_out"]["error"] > 0 and alice["left_out"]["unit"] == "loss"


def test_run_show__file_of_a_dense_run__says_what_a_message_holds(tmp_path: Path) -> None:
    (file := tmp_path / "my.run").write_bytes(sign_manifest(DENSE, OWNER).encode())
    text = call("run", "show", file).stdout
    assert "published basis, a core of 2 x 4 in each tensor" in text
    assert "Message          126 bytes: 16 numbers of 8 bits, of at most 16 rows" in text and "Distance" not in text
