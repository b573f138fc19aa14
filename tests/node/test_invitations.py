"""Used strings harm nobody: a newcomer does not claim them, and the owner's node signs for those who came first."""

from __future__ import annotations

import io

from protocol.crypto.keys import Signer
from protocol.events import PeerJoined
from protocol.ledger.statements import Statement, StatementKind
from protocol.node.node import Node
from sfnode.node.own_statements import Invitations
from sfnode.reporter import Reporter
from tests.support.ledgers import admit, claim, exclude, signer
from tests.support.manifests import OWNER, small_manifest
from tests.support.node_cores import ME, X, node

RUN = small_manifest(admission="invite")


def node_that_holds(*statements: bytes) -> Node:
    made = node(manifest=RUN)
    for data in statements:
        made.replica.add_statement(data)
    return made


def invitations(made: Node, *, uses: int = 1, owner: Signer | None = None, expects_peers: bool = False) -> Invitations:
    """Those of a node with an invitation of its own, token number 1."""
    codec = made.replica.ledger.roster.codec
    own = codec.claim(codec.invite(OWNER, b"token".ljust(31, b".") + b"\1", uses), ME.author)
    held: Statement = codec.decode_untrusted(own)
    return Invitations(made, held, owner, Reporter(stream=io.StringIO()), expects_peers=expects_peers)


def test_invitation__nobody_to_ask__is_claimed_at_once() -> None:
    asked = invitations(node_that_holds())
    assert asked.claim is not None and asked.due() == [asked.claim.data] and asked.is_claiming


def test_invitation__others_are_awaited__is_claimed_when_their_statements_are_here() -> None:
    made = node_that_holds()
    asked = invitations(made, expects_peers=True)
    assert asked.due() == []
    made.handle(PeerJoined(peer=X), 1)
    assert asked.due() == []
    made.sync.has_statements = True
    assert len(asked.due()) == 1


def test_invitation__another_has_used_it__is_left_alone_and_named_as_used() -> None:
    made = node_that_holds(claim(RUN, 1, 1))
    asked = invitations(made)
    assert asked.due() == [] and not asked.is_claiming
    roster = made.replica.ledger.roster
    assert roster.statistics(ME.author, asked.claim).is_invitation_used
    assert roster.is_admitted(signer(1).author), "the one who came first is thrown out"


def test_invitation__node_is_admitted_already__is_left_for_somebody_else() -> None:
    made = node_that_holds(RUN_ADMITS_ME)
    assert invitations(made).due() == []


RUN_ADMITS_ME = node(manifest=RUN).replica.ledger.roster.codec.admit(OWNER, ME.author)


def test_invitation__place_is_left_in_a_class__is_claimed() -> None:
    made = node_that_holds(claim(RUN, 1, 1, uses=2))
    assert len(invitations(made, uses=2).due()) == 1
    made.replica.add_statement(claim(RUN, 1, 2, uses=2))
    assert invitations(made, uses=2).due() == []


def test_owners_node__string_is_pasted_twice__first_one_stays_for_good() -> None:
    made = node_that_holds(claim(RUN, 2, 1))
    owner = invitations(made, owner=OWNER)
    owner.is_claiming = False
    (signed,) = owner.due()
    roster = made.replica.ledger.roster
    assert signed == admit(RUN, 1)
    made.replica.add_statement(signed)
    made.replica.add_statement(claim(RUN, 2, 2))
    assert owner.due() == []
    assert [roster.is_admitted(signer(number).author) for number in (1, 2)] == [True, False]


def test_owners_node__both_claims_came_while_it_was_away__one_is_admitted() -> None:
    made = node_that_holds(claim(RUN, 2, 2), claim(RUN, 2, 1), claim(RUN, 3, 4), exclude(RUN, 4, 0))
    owner = invitations(made, owner=OWNER)
    owner.is_claiming = False
    assert owner.due() == [admit(RUN, 2)], "not the first, or more than one, or an excluded author"


def test_owners_node__class_of_thirty_and_one_more__thirty_are_admitted() -> None:
    made = node_that_holds(*(claim(RUN, 2, number, uses=30) for number in range(31)))
    owner = invitations(made, owner=OWNER)
    owner.is_claiming = False
    for data in owner.due():
        made.replica.add_statement(data)
    roster = made.replica.ledger.roster
    assert [roster.is_admitted(signer(number).author) for number in range(31)] == [True] * 30 + [False]
    assert owner.due() == [] and {each[0] for each in roster.statements()} == {StatementKind.ADMIT, 32}
