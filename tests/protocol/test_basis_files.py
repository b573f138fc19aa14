"""The core and renewed bases: which one it asks for, in what order, and when again."""

from __future__ import annotations

from protocol.events import BasisArrived, FetchBasis, FetchFailed, StatementSubmitted, Ticked
from protocol.node.node import Node
from protocol.node.node_config import NodeConfig
from protocol.state.replica import Replica
from tests.support.ledgers import renew, signer
from tests.support.manifests import PUBLISHED_BASIS, small_manifest

FIRST, SECOND = "11" * 32, "22" * 32


def node_of(*renewals: tuple[int, str]) -> Node:
    manifest = small_manifest(**PUBLISHED_BASIS)
    node = Node(manifest, signer(1), NodeConfig(is_training=False), Replica(manifest))
    for epoch, sha256 in renewals:
        node.handle(StatementSubmitted(statement=renew(manifest, epoch, sha256[:2])), 0)
    return node


def asked_at(node: Node, now_ms: int) -> list[FetchBasis]:
    return [effect for effect in node.handle(Ticked(), now_ms) if isinstance(effect, FetchBasis)]


def test_bases__two_renewals__are_asked_for_one_by_one_in_the_order_of_their_epochs() -> None:
    node = node_of((2, SECOND), (1, FIRST))
    assert asked_at(node, 10) == [FetchBasis(sha256=FIRST, from_epoch=1)]
    assert asked_at(node, 20) == []
    node.handle(BasisArrived(sha256=FIRST), 30)
    assert node.bases.is_here(1) and not node.bases.is_here(2)
    assert asked_at(node, 40) == [FetchBasis(sha256=SECOND, from_epoch=2)]


def test_bases__nobody_has_one__the_next_is_asked_for_and_the_first_again_after_5_s() -> None:
    node = node_of((1, FIRST), (2, SECOND))
    asked_at(node, 10)
    node.handle(FetchFailed(sha256=FIRST), 20)
    assert asked_at(node, 30) == [FetchBasis(sha256=SECOND, from_epoch=2)]
    node.handle(BasisArrived(sha256=SECOND), 40)
    assert asked_at(node, 5_019) == []
    assert asked_at(node, 5_020) == [FetchBasis(sha256=FIRST, from_epoch=1)]


def test_bases__file_that_can_never_be_used__is_not_asked_for_again() -> None:
    node = node_of((1, FIRST))
    asked_at(node, 10)
    node.handle(FetchFailed(sha256=FIRST, is_lasting=True), 20)
    assert asked_at(node, 1 << 40) == [] and not node.bases.is_here(1)
