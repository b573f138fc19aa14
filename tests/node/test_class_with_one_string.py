"""A class joins by one string: keys, claims and admissions of the product, in a simulated network of real cores."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from protocol.events import StatementSubmitted
from protocol.node.node import Node
from protocol.wire import PeerId
from sfnode.api.simulation import VirtualWorld, _Swarm
from sfnode.keys import claim_invitation
from sfnode.node.own_statements import Invitations
from sfnode.reporter import Reporter
from sfnode.run.run_address import parse_run_addresses
from sfnode.storage.data_directory import DataDirectory
from tests.api.test_simulation import MadeUpLearner
from tests.cli.test_admission import INVITED, Place
from tests.cli.test_inviting import NODE, invite
from tests.support.manifests import OWNER

PUPILS = 30
MANIFEST = replace(INVITED, steps=2)


class Classroom(_Swarm):
    """Its first node is the owner's. Each looks once a second whether a statement about an invitation is due."""

    def __init__(self, folder: Path) -> None:
        super().__init__(MANIFEST, VirtualWorld(), lambda _step: None)
        self.folder, self.invitations = folder, dict[PeerId, Invitations]()

    def seat(self, number: int, string: str) -> Node:
        """Start a node that was joined with ``string``."""
        self.add_node(number, MadeUpLearner(MANIFEST), expects_peers=number > 0)
        name, node = list(self.nodes.items())[-1]
        directory, seed = DataDirectory(self.folder / str(number)), sha256(b"simulated node %d of 0" % number).digest()
        claim_invitation(MANIFEST, parse_run_addresses([string]).invitation, seed, directory)
        claim, owner = directory.statements.own_claim(MANIFEST), None if number else OWNER
        assert claim is not None and claim.author == node.author
        self.invitations[name] = Invitations(
            node, claim, owner, Reporter(stream=io.StringIO()), expects_peers=number > 0
        )
        return node

    def pass_seconds(self, count: int) -> None:
        for _ in range(count):
            for name, invitations in self.invitations.items():
                for statement in invitations.due():
                    self.give(name, StatementSubmitted(statement=statement))
            self.run(1_000)


def test_class_of_thirty__one_string__all_contribute_and_one_more_harms_nobody(tmp_path: Path) -> None:
    place = Place(tmp_path, MANIFEST)
    own, string = (
        json.loads(invite(place, "--uses", uses, "--at", NODE, "--json").stdout)["strings"][0] for uses in (1, PUPILS)
    )
    room = Classroom(tmp_path / "class")
    nodes = [room.seat(0, own), *(room.seat(number, string) for number in range(1, PUPILS + 1))]
    room.link_up(len(nodes))
    room.pass_seconds(8)
    late = room.seat(len(nodes), string)
    for name in list(room.nodes)[:2]:
        room.connect(name, list(room.nodes)[-1])
    room.pass_seconds(3)

    expected = {node.author for node in nodes}
    for node in (*nodes, late):
        roster = node.replica.ledger.roster
        assert {author for author in (*expected, late.author) if roster.is_admitted(author)} == expected
        assert {update.author for update in node.replica.ledger.slots.envelopes()} == expected
    assert len({node.replica.state_digest() for node in (*nodes, late)}) == 1 and room.dropped == []
    assert not room.invitations[list(room.nodes)[-1]].is_claiming
