"""The laboratory itself: its proxy, lies, judgements and clean-up; and its shortest scenarios, where they may run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from trio.testing import MemoryReceiveStream, MockClock, memory_stream_one_way_pair

from benchmarks.graphs import distances
from benchmarks.impostors import stalls
from benchmarks.sample_runs import OWNER, Shape, manifest_of, sealed_records, tiny_tensors
from protocol.crypto.keys import Signer
from protocol.events import Effect, PeerJoined, SendMessage
from protocol.node.node_config import NodeConfig
from protocol.run.manifest import Manifest, sign_manifest
from protocol.state.replica import Replica
from protocol.wire import Head, PeerId, Records
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.record_store import Store
from sfnode.worker_protocol.messages import Estimated, EstimateRequest
from tests.netlab import invariants, namespaces
from tests.netlab.bent import VARIABLE, BentNode
from tests.netlab.invariants import Acknowledged, BrokenInvariantError
from tests.netlab.laboratory import Laboratory, NetNode
from tests.netlab.namespaces import Namespace
from tests.netlab.proxy import Proxy
from tests.netlab.scenarios import NEED_NAT, SCENARIOS
from tests.netlab.soak import Sample, judge
from tests.netlab.tables import slope, table
from tests.netlab.topology import TOPOLOGIES, two_islands
from tests.netlab.worker import PacedWorker

IN_CI = (
    "late_joiner_behind_nat",
    pytest.param("everybody_leaves_but_one", marks=pytest.mark.slow),  # killed nodes come back in tests/processes
    "halves_for_two_minutes",
)
DATA = bytes(range(256)) * 100


@pytest.fixture
def permitted() -> None:
    """Skips loudly where this machine does not let us make namespaces."""
    reason = namespaces.why_not_here()
    if reason is not None:
        pytest.skip(reason)


# --- scenarios --------------------------------------------------------------------------------------------------


@pytest.mark.process(is_long=True)
@pytest.mark.usefixtures("permitted")
@pytest.mark.parametrize("name", IN_CI)
def test_netlab__scenario_in_short__invariant_holds(name: str) -> None:
    reason = namespaces.why_no_nat() if name in NEED_NAT else None
    if reason is not None:
        pytest.skip(reason)
    with Laboratory() as laboratory:
        SCENARIOS[name](laboratory, True)
    assert int(str(laboratory.figures["updates"])) > 10


@pytest.mark.process
@pytest.mark.usefixtures("permitted")
def test_laboratory__body_fails__nothing_is_left() -> None:
    def fail(laboratory: Laboratory) -> None:
        laboratory.graph(two_islands(4), 4)
        laboratory.nodes[0].start()
        programs.append(laboratory.run(laboratory.nodes[1].machine, "-c", "input()"))
        raise RuntimeError("as a bug in a scenario")

    programs: list[subprocess.Popen[str]] = []
    laboratory = Laboratory()
    with pytest.raises(RuntimeError, match="as a bug"), laboratory:
        fail(laboratory)
    assert f"{os.getpid()}-" not in namespaces.run("ip", "netns", "list")
    assert programs[0].returncode is not None
    assert not laboratory.nodes[0].is_up
    assert not laboratory.folder.exists()


@pytest.mark.process
@pytest.mark.usefixtures("permitted")
def test_wiring__owner_was_killed__next_one_removes_its_namespaces() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    name = f"sfnetlab{gone.pid}-left"
    namespaces.run("ip", "netns", "add", name)
    namespaces.Wiring()
    assert name not in namespaces.run("ip", "netns", "list")


def test_why_not_here__no_linux__says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert "run `make netlab` on a Linux machine" in str(namespaces.why_not_here())


def test_why_not_here__tool_missing__names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("shutil.which", lambda tool: None if tool == "tc" else f"/sbin/{tool}")
    assert str(namespaces.why_not_here()).startswith("tc not found: apt-get install iproute2")


# --- topologies -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("count", [6, 8, 9, 32])
def test_topology__any_size__is_connected(name: str, count: int) -> None:
    edges = TOPOLOGIES[name](count)
    assert None not in distances(edges, count, 0)
    assert all(0 <= one < other < count for one, other in edges)


def test_two_islands__last_edge_removed__fall_apart() -> None:
    edges = two_islands(8)
    assert distances(edges[:-1], 8, 0).count(None) == 4


# --- the proxy --------------------------------------------------------------------------------------------------


async def passed(fault: str, *, proxy: Proxy | None = None) -> tuple[bytes, Proxy, float]:
    """What comes out when DATA goes in, and after how many seconds."""
    proxy = proxy or Proxy(target=("127.0.0.1", 1))
    proxy.set_fault(fault)
    (near, inner), (outer, far) = memory_stream_one_way_pair(), memory_stream_one_way_pair()
    started_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        await near.send_all(DATA)
        await near.aclose()
        nursery.start_soon(proxy.pump, inner, outer, trio.CancelScope())
        received = await _all_of(far)
        nursery.cancel_scope.cancel()
    return received, proxy, trio.current_time() - started_s


async def _all_of(stream: MemoryReceiveStream) -> bytes:
    received = b""
    with trio.move_on_after(3_600):
        while data := await stream.receive_some():
            received += data
    return received


@pytest.mark.parametrize(("fault", "seconds"), [("none", 0.0), ("slice", 0.0), ("delay", 0.15), ("throttle", 1.28)])
async def test_proxy__fault_that_loses_nothing__bytes_arrive_in_time(
    fault: str, seconds: float, autojump_clock: MockClock
) -> None:
    received, _, lasted_s = await passed(fault)
    assert received == DATA
    assert lasted_s == pytest.approx(seconds, abs=0.01)


async def test_proxy__reset__connection_ends_early(autojump_clock: MockClock) -> None:
    proxy = Proxy(target=("127.0.0.1", 1), reset_after_bytes=(1_000, 1_000))
    received, _, _ = await passed("reset", proxy=proxy)
    assert (received, proxy.hits) == (b"", 1)


async def test_proxy__corrupt__some_bit_is_turned(autojump_clock: MockClock) -> None:
    received, proxy, _ = await passed("corrupt")
    turned = [one ^ other for one, other in zip(received, DATA, strict=True) if one != other]
    assert len(turned) == proxy.hits == 1
    assert turned[0].bit_count() == 1


async def test_proxy__stall__nothing_passes_until_it_ends(autojump_clock: MockClock) -> None:
    async def end_it() -> None:
        await trio.sleep(600.0)
        proxy.set_fault("none")

    proxy = Proxy(target=("127.0.0.1", 1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(end_it)
        received, _, lasted_s = await passed("stall", proxy=proxy)
    assert received == DATA
    assert lasted_s == pytest.approx(600.0)


def test_proxy__unknown_fault__is_named() -> None:
    with pytest.raises(ValueError, match="no fault 'gremlins'; there are none, delay"):
        Proxy(target=("127.0.0.1", 1)).set_fault("gremlins")


# --- the worker and the liars ------------------------------------------------------------------------------------


async def test_paced_worker__pauses__answers_when_it_goes_on(tmp_path: Path, autojump_clock: MockClock) -> None:
    worker = PacedWorker(path=tmp_path / "worker.sock", scalars=3, pace_s=0.5)
    replies: list[object] = []

    async def ask() -> None:
        replies.append(await worker.answer(EstimateRequest(step=4, seed=9, directions=8)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(60.0)
        assert replies == []
        worker.running.set()
    (reply,) = replies
    assert isinstance(reply, Estimated)
    assert len(reply.scalars) == 3
    assert all(abs(q) <= 64 for q in reply.scalars)


def test_bent_node__has_suppliers__tells_them_the_truth_and_others_the_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "wrong_digests")
    manifest = _manifest()
    node = BentNode(manifest, Signer(bytes(32)), NodeConfig(is_training=False), Replica(manifest))
    node.suppliers = frozenset({"supplier"})
    told = {peer: _head(node.handle(PeerJoined(peer=PeerId(peer)), 0)) for peer in ("supplier", "joiner")}
    assert told["supplier"].root == node.replica.ledger.root()
    assert told["joiner"].root != node.replica.ledger.root()


def test_stalls__records_asked_for__are_kept_back() -> None:
    assert stalls(Records(request=7, data=b"")) is None


# --- judgements -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rss_mib", "descriptors", "fault"),
    [
        (lambda minute: 100.0, lambda minute: 20, ""),
        (lambda minute: 100.0 + 50 * (minute < 20), lambda minute: 20 + minute % 3, ""),
        (lambda minute: 100.0 + minute / 30, lambda minute: 20, "2.0 MiB/h >= 1"),
        (lambda minute: 160.0, lambda minute: 20, "160 MiB > 150"),
        (lambda minute: 100.0, lambda minute: 20 + minute // 2, "descriptors 42 -> 49"),
    ],
)
def test_soak__samples_of_an_hour__are_judged_by_their_second_half(
    rss_mib: Callable[[int], float], descriptors: Callable[[int], int], fault: str
) -> None:
    samples = [
        Sample(seconds=60.0 * m, rss_mib=rss_mib(m), descriptors=descriptors(m), updates=3_000 * m) for m in range(60)
    ]
    verdict = judge("relay", samples)
    assert "; ".join(verdict.faults) == fault
    assert verdict.rate_per_s == pytest.approx(50.0)


def test_soak__source_stopped_half_way__shows_nothing_and_fails() -> None:
    """Found when a relay was frozen by a profiler: the source died of its own burst, and the relays were "ok"."""
    samples = [Sample(seconds=60.0 * m, rss_mib=100.0, descriptors=20, updates=3_000 * min(m, 30)) for m in range(60)]
    assert judge("relay", samples).faults == ["0.0 updates/s < 45"]


def test_slope__points_on_a_line__is_that_lines() -> None:
    assert slope([(x, 3.0 * x - 7.0) for x in (0.0, 1.0, 5.0, 6.0)]) == pytest.approx(3.0)
    assert slope([(1.0, 2.0)]) == 0.0


def test_table__cells_of_any_width__stand_in_columns() -> None:
    assert table(("a", "b"), [("long", "1"), ("x", "22")]).splitlines() == ["a     b", "long  1", "x     22"]


def test_acknowledged__node_lacks_an_update__is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invariants, "_ARRIVE_S", 0.0)
    manifest = _manifest()
    records = list(sealed_records(manifest, Shape(authors=1, steps=3)))
    nodes = [_stored(tmp_path / name, manifest, held) for name, held in (("all", records), ("some", records[:2]))]
    acknowledged = Acknowledged()
    acknowledged.check(nodes[:1])
    with pytest.raises(BrokenInvariantError, match="some lacks 1 of 3"):
        acknowledged.check(nodes)


def _head(effects: list[Effect]) -> Head:
    (effect,) = effects
    assert isinstance(effect, SendMessage)
    assert isinstance(effect.message, Head)
    return effect.message


def _manifest() -> Manifest:
    return manifest_of(Shape(authors=4, steps=100), tiny_tensors())


def _stored(directory: Path, manifest: Manifest, records: list[bytes]) -> NetNode:
    store = Store(DataDirectory(directory), sign_manifest(manifest, OWNER))
    store.add(records, is_durable=True)
    store.close()
    return NetNode(directory=directory, arguments=[], machine=Namespace("none", "none"), is_training=False)
