"""How much noise a node's messages have is kept with them: it cannot become less, nor can the rows be others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.crypto.keys import Signer
from protocol.errors import OperatorError
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.record_store import Store
from tests.storage.test_store import ALICE, RECORDS, SIGNED


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An open store in a new directory."""
    opened = Store(DataDirectory(tmp_path / "node"), SIGNED)
    yield opened
    opened.close()


def test_hold_noise__same_or_more_noise_on_the_same_rows__goes_on(store: Store) -> None:
    assert store.hold_noise(ALICE.author, 1.0, "a") == 1.0
    store.add(RECORDS[:1], is_durable=True)
    assert store.hold_noise(ALICE.author, 1.0, "a") == 1.0
    assert store.hold_noise(ALICE.author, 2.0, "a") == 1.0  # the earlier message has no more
    assert store.hold_noise(ALICE.author, 1.0, "a") == 1.0


@pytest.mark.parametrize(
    ("multiplier", "data", "complaint"),
    [(0.5, "a", "--noise 1.0 or more"), (None, "", "--noise 1.0 or more"), (1.0, "b", "the file has changed")],
)
def test_hold_noise__less_noise_or_other_rows__operator_error(
    store: Store, multiplier: float | None, data: str, complaint: str
) -> None:
    store.hold_noise(ALICE.author, 1.0, "a")
    with pytest.raises(OperatorError, match=complaint):
        store.hold_noise(ALICE.author, multiplier, data)


def test_hold_noise__messages_of_others__do_not_matter(store: Store) -> None:
    assert store.hold_noise(ALICE.author, None, "") == 0.0
    store.add(RECORDS[:1], is_durable=True)
    assert store.hold_noise(ALICE.author, None, "") == 0.0
    assert store.hold_noise(Signer(b"bob".ljust(32, b".")).author, 1.0, "a") == 1.0  # another key has sent nothing


def test_hold_noise__own_messages_without_noise__operator_error(store: Store) -> None:
    store.add(RECORDS[:1], is_durable=True)
    with pytest.raises(OperatorError, match="has sent messages without noise"):
        store.hold_noise(ALICE.author, 1.0, "a")
