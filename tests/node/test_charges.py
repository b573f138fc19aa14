"""The daemon measures what an answer takes, and charges it to the peer that asked."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from benchmarks.sample_runs import OWNER, Shape, manifest_of, sealed_records, signer, tiny_tensors
from protocol.crypto.hashing import Author
from protocol.run.manifest import sign_manifest
from protocol.state.replica import Replica
from protocol.wire import Payloads, PayloadsRequest
from sfnode.network import bounds
from sfnode.network.network_config import NetworkConfig
from sfnode.node.daemon import Daemon
from sfnode.node.daemon_config import DaemonConfig
from sfnode.reporter import Reporter
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.record_store import Store
from tests.attacks.visitor import visiting
from tests.support.network_nodes import LOOPBACK

SLOW_S = 0.05  # booked as half a millisecond


@pytest.mark.slow
async def test_daemon__slow_disk__peer_waits_for_what_its_answers_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = Shape(authors=1, steps=64)
    signed = sign_manifest(manifest_of(shape, tiny_tensors()), OWNER)
    store = Store(DataDirectory(tmp_path / "relay"), signed)
    store.add(sealed_records(signed.manifest, shape), is_durable=True)
    store.close()
    monkeypatch.setitem(Replica.__init__.__kwdefaults__, "in_memory_max", 0)  # type: ignore[arg-type]
    config = DaemonConfig(
        signed=signed,
        data_dir=DataDirectory(tmp_path / "relay"),
        identity_seed=bytes(32),
        network=NetworkConfig(listen=(LOOPBACK,), neighbours_fixed=True, local_discovery=False),
        training=None,
    )
    async with trio.open_nursery() as nursery:
        (address, *_) = await nursery.start(Daemon(config, Reporter(is_json=True, stream=io.StringIO())).run)
        read = Store.read

        def read_slowly(self: Store, author: Author, steps: Sequence[int]) -> list[bytes]:
            time.sleep(SLOW_S)
            return read(self, author, steps)

        monkeypatch.setattr(Store, "read", read_slowly)
        async with visiting(str(address), signed.manifest.run_id) as greedy:
            started_s, questions = trio.current_time(), 4
            for number in range(questions):
                await greedy.say(PayloadsRequest(request=number, span=0, author=signer(0).author))
            for _ in range(questions):
                await greedy.hear(Payloads)
            owed_s = SLOW_S * (questions - 1) - bounds.ANSWERS_BURST_US / 1e6
            assert trio.current_time() - started_s > 1e6 * owed_s / bounds.ANSWERS_US_PER_S
        nursery.cancel_scope.cancel()
