"""A file from a neighbour over real sockets: beside the session, whoever has dialled."""

from __future__ import annotations

import hashlib

import pytest
import trio

from sfnode.network.network_config import NetworkConfig
from sfnode.network.sessions.file_download import Wanted
from sfnode.node.snapshot_files import FileFetcher
from tests.support.network_nodes import Memory, network, start, until

FILE = hashlib.shake_256(b"file").digest((1 << 20) + 77)


@pytest.mark.parametrize("dialler_has_it", [False, True])
async def test_neighbours__one_lacks_a_file__fetches_it_beside_the_session_whoever_dialled(
    dialler_has_it: bool,
) -> None:
    wanted = Wanted.snapshot(hashlib.sha256(FILE).hexdigest(), len(FILE))
    async with trio.open_nursery() as nursery:
        sources = [None, Memory(FILE)] if dialler_has_it else [Memory(FILE), None]
        listener = await start(nursery, network(1, basis=sources[0]))
        bootstrap = NetworkConfig(bootstrap=listener.network.introduction.addresses[:1])
        dialler = await start(nursery, network(2, bootstrap, basis=sources[1]))
        await until(lambda: listener.peers() and dialler.peers())
        asking = listener if dialler_has_it else dialler
        with trio.fail_after(10.0):
            assert await FileFetcher(asking.network.neighbour_files).fetch(wanted) == FILE
            other = dialler if dialler_has_it else listener
            assert await FileFetcher(other.network.neighbour_files).fetch(wanted) is None
        assert not listener.disconnected() and not dialler.disconnected()
        nursery.cancel_scope.cancel()
