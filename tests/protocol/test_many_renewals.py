"""An owner may renew the basis in each epoch, and name a file in many: what a node does of it while nothing changes."""

from __future__ import annotations

from collections.abc import ItemsView
from pathlib import Path
from typing import cast

import pytest

from protocol.events import FetchBasis
from protocol.ledger.roster import Roster
from protocol.node.fetches import BasisFiles
from protocol.run.manifest import Manifest
from protocol.subspace.basis_file import BasisContent
from sfnode.storage import stored_bases
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.stored_bases import BASIS_FILE, read_bases
from tests.support.ledgers import claim, exclude, renew, signer
from tests.support.manifests import PUBLISHED_BASIS, small_manifest

MANY = 30_000
RENEWED = "cd" * 32


class Renewals(dict[int, str]):
    """Counts how often somebody walks it."""

    walks = 0

    def items(self) -> ItemsView[int, str]:  # type: ignore[override]
        self.walks += 1
        return super().items()


class FakeRoster:
    def __init__(self, renewals: Renewals) -> None:
        self._renewals = renewals

    def renewals(self) -> Renewals:
        return self._renewals


def test_basis_files__thirty_thousand_renewals_and_nothing_new__are_walked_once() -> None:
    renewals = Renewals({epoch: f"{epoch:064x}" for epoch in range(1, MANY + 1)})
    files = BasisFiles(cast(Roster, FakeRoster(renewals)))
    assert files.tick(0) == [FetchBasis(sha256=renewals[1], from_epoch=1)]
    for now_ms in range(0, 1_000, 50):
        assert files.tick(now_ms) == [] and not files.is_here(MANY)
    files.failed(renewals[1], 1_000, is_lasting=True)
    assert files.tick(1_000) == [FetchBasis(sha256=renewals[2], from_epoch=2)]
    files.arrived(renewals[2])
    assert (files.first_missing(MANY), files.is_here(0), files.is_here(2)) == (renewals[1], True, False)
    assert renewals.walks == 1


def test_roster__asked_again_and_nothing_has_changed__makes_no_new_answer() -> None:
    manifest = small_manifest(**PUBLISHED_BASIS)
    roster = Roster(manifest)
    roster.add(renew(manifest, 1))
    roster.add(exclude(manifest, 1, 5))
    renewals, excluded = roster.renewals(), roster.excluded()
    assert roster.renewals() is renewals and roster.excluded() is excluded
    roster.add(renew(manifest, 1, "ab"))
    roster.add(exclude(manifest, 1, 4))
    assert (roster.renewals(), roster.excluded()) == ({1: "ab" * 32}, {signer(1).author: 4})


def test_roster__a_token_claimed_twice__both_are_named_without_a_look_at_all_statements() -> None:
    manifest = small_manifest(admission="invite")
    roster = Roster(manifest)
    roster.add(claim(manifest, 1, 1))
    assert not roster.has_void_claim(signer(1).author)
    roster.add(claim(manifest, 1, 2))
    assert roster.has_void_claim(signer(1).author) and roster.has_void_claim(signer(2).author)


def test_read_bases__many_renewals_name_one_file__it_is_looked_for_and_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = small_manifest(**PUBLISHED_BASIS)
    reads: list[str] = []

    def decode(manifest: Manifest, data: bytes, origin: Path, sha256: str | None = None) -> BasisContent:
        reads.append(str(origin))
        return BasisContent(bases=())

    monkeypatch.setattr(stored_bases, "read_bytes", lambda path, what: b"")
    monkeypatch.setattr(stored_bases, "_decode", decode)
    path = DataDirectory(tmp_path).bases.path_of(manifest, RENEWED)
    path.touch()
    renewals = DataDirectory(tmp_path).bases.renewals(manifest, dict.fromkeys(range(1, 51), RENEWED))
    bases = read_bases(manifest, tmp_path / BASIS_FILE, renewals)
    assert (len(renewals), bases.name(7)) == (50, RENEWED)
    assert reads == [str(tmp_path / BASIS_FILE), str(path)]
