"""Events that a node takes together: what one stores, the next one can read; and who is blamed for a failure."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from protocol.errors import StorageDamagedError
from protocol.events import Event, MessageArrived, PeerJoined, Ticked
from protocol.run.manifest import sign_manifest
from protocol.state.replica import Replica
from protocol.wire import PeerId, Statements
from sfnode.network.network_config import NetworkConfig
from sfnode.node.daemon import Daemon
from sfnode.node.daemon_config import DaemonConfig
from sfnode.node.running_node import RunningNode
from sfnode.reporter import Reporter
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.record_store import Store
from tests.support.ledgers import admit, claim, seal
from tests.support.manifests import OWNER, small_manifest
from tests.support.network_nodes import LOOPBACK
from tests.support.node_cores import pushed

RUN = small_manifest(admission="invite")
PEER = PeerId("x")


def running_on(store: Store, data_dir: DataDirectory) -> RunningNode:
    """A relay that has met a neighbour, without a network."""
    config = DaemonConfig(
        signed=sign_manifest(RUN, OWNER),
        data_dir=data_dir,
        identity_seed=bytes(32),
        network=NetworkConfig(listen=(LOOPBACK,), neighbours_fixed=True, local_discovery=False),
        training=None,
    )
    daemon = Daemon(config, Reporter(is_json=True, stream=io.StringIO()))
    running = RunningNode(config, store, Replica(RUN, store), daemon.data_sharing, daemon.reporter, daemon.slips)
    running._handle([Ticked(), PeerJoined(peer=PEER)])
    return running


def arrived(*statements: bytes) -> Event:
    return MessageArrived(peer=PEER, message=Statements(request=0, statements=statements, is_last=True))


async def test_turn__author_is_suspended_and_admitted_again__has_the_record_of_the_same_turn(tmp_path: Path) -> None:
    """It was read back from a disk that did not have it yet; of the node's own, nobody had a copy until its restart."""
    data_dir = DataDirectory(tmp_path / "relay")
    store = Store(data_dir, sign_manifest(RUN, OWNER))
    running = running_on(store, data_dir)
    running._handle([arrived(claim(RUN, 1, 2))])
    record = MessageArrived(peer=PEER, message=pushed(seal(RUN, 2, 0)))
    running._handle([record, arrived(claim(RUN, 1, 3)), arrived(admit(RUN, 2))])
    assert running.node.replica.ledger.updates == store.count() == 1
    store.close()


@pytest.mark.parametrize(("error", "is_blamed"), [(StorageDamagedError("a disk"), False), (KeyError("a bug"), True)])
async def test_turn__message_meets_a_fault_of_this_node__peer_is_avoided_unless_a_person_must_act(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, is_blamed: bool
) -> None:
    """A neighbour was discouraged for a day, over restarts, because this node's disk had failed."""
    data_dir = DataDirectory(tmp_path / "relay")
    store = Store(data_dir, sign_manifest(RUN, OWNER))
    running = running_on(store, data_dir)

    def fail(*_args: object, **_named: object) -> None:
        raise error

    monkeypatch.setattr(running.node, "handle", fail)
    with pytest.raises(type(error)):
        running._handle([arrived(admit(RUN, 2))])
    assert running.network.sessions.is_discouraged(PEER) is is_blamed
    store.close()
