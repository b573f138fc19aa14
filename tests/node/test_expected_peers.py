"""Whether a node expects others is one fact: for the core, which waits for them, and for what its status says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from protocol.crypto import Signer
from protocol.run import SignedManifest, sign_manifest
from protocol.state import Replica
from sfnode.keys import claim_invitation, new_invitation
from sfnode.network import NetworkConfig, saved_peers
from sfnode.network.policy import PeerRow, parse_bootstrap, peer_of_author
from sfnode.node.running_node import RunningNode
from sfnode.storage import DataDirectory, Store
from tests.support.daemons import daemon_in_this_process
from tests.support.manifests import OWNER, small_manifest

SEED, OTHER = bytes(32), peer_of_author(Signer(b"other".ljust(32, b".")).author)
RUN: SignedManifest = sign_manifest(small_manifest(admission="invite"), OWNER)


def life_of(folder: Path, network: NetworkConfig) -> RunningNode:
    """A node that does not run yet, whose invitation is claimed when there is nobody to ask."""
    claim_invitation(RUN.manifest, new_invitation(RUN.manifest, OWNER).text, SEED, DataDirectory(folder))
    daemon = daemon_in_this_process(RUN, folder, network=network, worker=folder / "worker.sock")
    config, store = replace(daemon.config, identity_seed=SEED), Store(daemon.config.data_dir, RUN)
    try:
        replica = Replica(RUN.manifest, store)
        return RunningNode(config, store, replica, daemon.data_sharing, daemon.reporter, daemon.slips)
    finally:
        store.close()


@pytest.mark.parametrize(("peer", "is_alone"), [(peer_of_author(Signer(SEED).author), True), (OTHER, False)])
async def test_node__its_own_address_is_the_only_bootstrap__waits_for_nobody(
    tmp_path: Path, peer: str, is_alone: bool
) -> None:
    """The owner pasted their own string: status said "alone", and the core never claimed its invitation."""
    network = NetworkConfig(bootstrap=(parse_bootstrap(f"/ip4/127.0.0.1/tcp/4001/p2p/{peer}"),))
    life = life_of(tmp_path, network)
    assert bool(life.invitations.due()) is is_alone
    assert life.network.statistics().expects_peers is not is_alone


async def test_node__neighbours_are_fixed_and_it_has_met_others__waits_for_these_and_says_so(tmp_path: Path) -> None:
    """Status said "alone" of a node that signs nothing before those who dialled it are back (SPEC 9.2.3)."""
    row = PeerRow(peer=OTHER, addresses=(), last_success_unix_ms=1, failures=0, is_bootstrap=False)
    store = Store(DataDirectory(tmp_path), RUN)
    store.save("known_peers", saved_peers.encode_rows([row]))
    store.close()
    life = life_of(tmp_path, NetworkConfig(neighbours_fixed=True))
    assert life.network.statistics().expects_peers and not life.invitations.due()
    assert not life.network.book.rows(), "it dials one that no operator named"
