"""Who has contributed what, and when: read from a ledger's bitmaps."""

from __future__ import annotations

import random
from dataclasses import replace
from unittest.mock import Mock

import pytest

from protocol.ledger.digest_buckets import Bucket
from sfnode.page.run_facts import CELLS, contributions_to
from tests.support.ledgers import ledger_of, seal, signer
from tests.support.manifests import small_manifest


def test_contributions__two_authors__most_updates_first_with_the_parts_of_the_run() -> None:
    manifest = small_manifest(steps=400)
    records = [seal(manifest, 1, step) for step in range(200, 300)] + [seal(manifest, 2, step) for step in range(5)]
    first, second = contributions_to(ledger_of(manifest, records), manifest)
    assert (first.author, first.updates, first.last_step) == (signer(1).author, 100, 299)
    assert first.cells == (0,) * 20 + (100,) * 10 + (0,) * 10
    assert (second.author, second.updates, second.cells[0], sum(second.cells)) == (signer(2).author, 5, 50, 50)


def test_contributions__beyond_a_span_of_the_ledger__are_counted_on() -> None:
    manifest = small_manifest(steps=4_000)
    records = [seal(manifest, 1, step) for step in (0, 1_023, 1_024, 3_999)]
    (found,) = contributions_to(ledger_of(manifest, records), manifest)
    assert (found.updates, found.last_step) == (4, 3_999)
    assert [number for number, share in enumerate(found.cells) if share] == [0, 10, 39]


def test_contributions__any_slots__no_record_is_read_and_each_bitmap_taken_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By plain counting; a fault once: each author's bitmap of the whole run was built and cut into parts."""
    chance, manifest = random.Random(3), small_manifest(steps=4_100)
    slots = {author: chance.sample(range(4_100), 30) for author in range(3)}
    ledger = ledger_of(manifest, [seal(manifest, author, step) for author, steps in slots.items() for step in steps])
    looked = Mock(side_effect=ledger.slots.bucket)
    monkeypatch.setattr(ledger.slots, "bucket", looked)
    monkeypatch.setattr(Bucket, "by_step", None)
    for found in contributions_to(ledger, manifest):
        steps = next(steps for author, steps in slots.items() if signer(author).author == found.author)
        assert (found.updates, found.last_step) == (30, max(steps))
        for cell, share in enumerate(found.cells):
            start, end = (4_100 * number // CELLS for number in (cell, cell + 1))
            assert share == 100 * sum(start <= step < end for step in steps) // (end - start)
    assert looked.call_count == len({(author, step // 1_024) for author, steps in slots.items() for step in steps})


def test_contributions__several_steps_in_each_update__fill_a_part_all_the_same() -> None:
    manifest = small_manifest(steps=400, local_steps=4)
    records = [seal(manifest, 1, step) for step in range(0, 400, 4)]
    (found,) = contributions_to(ledger_of(manifest, records), manifest)
    assert (found.updates, set(found.cells)) == (100, {66, 100})


def test_contributions__two_payloads_for_a_step__do_not_count() -> None:
    manifest = small_manifest(steps=40)
    records = [seal(manifest, 1, 3, 5), seal(manifest, 1, 3, 6), seal(manifest, 1, 4)]
    (found,) = contributions_to(ledger_of(manifest, records), manifest)
    assert (found.updates, found.void_slots, found.last_step) == (1, 1, 4)


def test_contributions__run_shorter_than_its_picture__has_all_parts() -> None:
    manifest = replace(small_manifest(steps=40), steps=8)
    (found,) = contributions_to(ledger_of(manifest, [seal(manifest, 1, 7)]), manifest)
    assert len(found.cells) == CELLS and found.cells[-1] == 100 and sum(found.cells) == 100
