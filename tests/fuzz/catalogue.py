"""The list of fuzz targets: what each is, where its code lies, its bounds and its share of the budget.

Imports nothing that is under test: the engine must instrument that while it is imported.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CHECK_S_MAX: Final = 1.0  # processor time of one input; the slowest honest ones take 30 ms
CORPUS: Final = Path(__file__).resolve().parent / "corpus"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Code of one target.

    Attributes:
        check: run one input; any exception is a finding. A pure function of the bytes.
        seeds: inputs made of valid objects, to start from.
    """

    check: Callable[[bytes], None]
    seeds: Callable[[], Iterator[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What is known of a target before its code is imported.

    Attributes:
        name: on the command line.
        module: holds ``TARGETS``, a mapping from names to :class:`Target`.
        bytes_max: most bytes of one input. Longer ones find nothing more and cost speed.
        share: of a budget of executions, in thousands of ten millions; set so that every target gets about a minute.
        purpose: one line.
    """

    name: str
    module: str
    bytes_max: int
    share: int
    purpose: str


ENTRIES: Final = (
    Entry(name="wire", module="wire", bytes_max=512, share=2_000, purpose="any bytes as a message, against a schema"),
    Entry(name="rows", module="wire", bytes_max=256, share=200, purpose="messages with chosen fields, same schema"),
    Entry(name="structure", module="structures", bytes_max=256, share=120, purpose="plain data as any declared class"),
    Entry(name="envelope", module="envelopes", bytes_max=256, share=1_200, purpose="a record, against SPEC 6 by hand"),
    Entry(
        name="statement", module="owner_statements", bytes_max=256, share=100, purpose="a statement, against the SPEC"
    ),
    Entry(name="manifest", module="run_files", bytes_max=2_048, share=600, purpose="any bytes as a run file"),
    Entry(name="basis", module="basis_files", bytes_max=128, share=400, purpose="any bytes as a dense core's basis"),
    Entry(name="snapshot", module="snapshot_files", bytes_max=256, share=300, purpose="any bytes as a snapshot"),
    Entry(name="attestation", module="snapshot_files", bytes_max=192, share=200, purpose="any bytes as an attestation"),
    Entry(name="audit", module="audit_reports", bytes_max=2_048, share=200, purpose="any bytes as an audit report"),
    Entry(name="log", module="log_files", bytes_max=4_096, share=60, purpose="any bytes and odd blocks as a log file"),
    Entry(name="manifest-fields", module="run_files", bytes_max=128, share=80, purpose="signed run files, odd fields"),
    Entry(name="reward", module="reward_rules", bytes_max=512, share=200, purpose="any bytes as a rule of rewards"),
    Entry(name="frames", module="streams", bytes_max=512, share=1_200, purpose="a byte stream cut anywhere"),
    Entry(name="channel", module="streams", bytes_max=1_024, share=600, purpose="a byte stream as messages"),
    Entry(name="handshake", module="streams", bytes_max=1_024, share=80, purpose="first words, manifest transfer"),
    Entry(name="addresses", module="peers", bytes_max=256, share=300, purpose="addresses and peer ids as text"),
    Entry(name="exchange", module="peers", bytes_max=512, share=40, purpose="peer lists, the address book's bounds"),
    Entry(name="reach", module="reach_answers", bytes_max=64, share=200, purpose="how a peer says that it sees us"),
    Entry(name="mdns", module="mdns_packets", bytes_max=700, share=600, purpose="packets of the local network"),
    Entry(name="known-peers", module="local_files", bytes_max=512, share=1_200, purpose="the stored address book"),
    Entry(name="status", module="local_files", bytes_max=16_384, share=600, purpose="the status file"),
    Entry(name="worker", module="local_files", bytes_max=512, share=1_500, purpose="frames of the training worker"),
    Entry(name="store", module="local_files", bytes_max=8_192, share=20, purpose="the ledger's database file"),
    Entry(name="replay", module="local_files", bytes_max=512, share=250, purpose="stored records, any bytes"),
    Entry(name="ledger", module="ledger_sets", bytes_max=256, share=30, purpose="the one door, against a model"),
    Entry(name="answer", module="syncing", bytes_max=64, share=40, purpose="any request to a ledger"),
    Entry(name="sync", module="syncing", bytes_max=256, share=25, purpose="a session with a peer that lies"),
    Entry(name="node", module="nodes", bytes_max=512, share=25, purpose="the node core: events from three peers"),
)
BY_NAME: Final = {entry.name: entry for entry in ENTRIES}
# What the engine instruments: the code under test, and none of the libraries or of the tests.
INSTRUMENTED: Final = (
    "protocol",
    "sfnode.node.daemon",
    "sfnode.status",
    "sfnode.rewards",
    "sfnode.storage.data_directory",
    "sfnode.storage.stored_records",
    "sfnode.storage.stored_records",
    "sfnode.worker_protocol.messages",
    "sfnode.network.policy.address_book",
    "sfnode.network.policy.addresses",
    "sfnode.network.sessions.channel",
    "sfnode.network.discovery.peer_exchange",
    "protocol.framing",
    "sfnode.network.sessions.handshake",
    "sfnode.network.discovery.mdns_packets",
    "sfnode.network.transport.reachability",
    "sfnode.network.sessions.file_server",
    "sfnode.network.sessions.file_download",
)


def load(entry: Entry) -> Target:
    """Import the target's code."""
    module = importlib.import_module(f"tests.fuzz.{entry.module}")
    targets: dict[str, Target] = module.TARGETS
    return targets[entry.name]


def bounded(check: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """The check with a limit on its time: a small input that takes long would let a peer stop a node."""

    def check_bounded(data: bytes) -> None:
        start_s = time.process_time()
        check(data)
        taken_s = time.process_time() - start_s
        assert taken_s <= CHECK_S_MAX, f"{len(data)} bytes took {taken_s:.1f} s of processor time"

    return check_bounded


def corpus_files(entry: Entry) -> list[Path]:
    """The checked-in inputs of a target, by name."""
    return sorted(path for path in (CORPUS / entry.name).glob("*") if path.is_file())
