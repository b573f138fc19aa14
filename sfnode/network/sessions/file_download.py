"""Downloads of the manifest and of files (published bases, snapshots, pieces of a model) from peers, in parts."""

import hashlib
import itertools
import random
import secrets
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace

import trio

from protocol.errors import OperatorError, OtherReleaseError, Reject, RejectReason
from protocol.limits import BASIS_BYTES_MAX, MANIFEST_BYTES_MAX, PART_BYTES_MAX, SNAPSHOT_BYTES_MAX
from protocol.run import Manifest, basis_bytes, decode_run_untrusted
from protocol.wire import Bye, FilePart, FileRequest, ManifestPart, ManifestRequest, PeerId
from sfnode import __version__
from sfnode.network import bounds
from sfnode.network.network_config import Timings
from sfnode.network.policy import Address
from sfnode.network.reports import DialReport
from sfnode.network.sessions.bandwidth_limit import Pace, Traffic
from sfnode.network.sessions.channel import Channel
from sfnode.network.sessions.handshake import OBSERVER_RUN_ID, RefusedError, exchange_hello, own_hello
from sfnode.network.transport import DialError, Host, LinkBrokenError


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A document to download, and how to ask for it.

    Attributes:
        name: kind of document, for messages.
        bytes_max: upper bound of the whole document.
        total, sha256: length and hash of a file, which several peers may serve in turn; None: it is a manifest.
        is_total_claimed: others claim this length, so a peer with another one is left, and not penalised.
        run_id: run whose manifest it must be; None means any run.
        is_of_one_peer: all of it comes from one peer, which is penalised for a wrong hash.
        start, end: wanted segment in bytes; end None means the whole. A segment's bytes are not checked.
        parts_ahead: number of requests in flight.
    """

    name: str
    bytes_max: int
    total: int | None = None
    sha256: str | None = None
    is_total_claimed: bool = False
    run_id: bytes | None = None
    is_of_one_peer: bool = False
    start: int = 0
    end: int | None = None
    parts_ahead: int = bounds.PARTS_AHEAD_MAX

    @property
    def size(self) -> int:
        """Return the number of bytes to download; 0 if unknown."""
        end = self.total if self.end is None else self.end
        return 0 if end is None else end - self.start

    @classmethod
    def manifest(cls, run_id: bytes | None) -> "Wanted":
        """Describe the manifest of a run; None means the run of the node that is asked."""
        return cls(name="manifest", bytes_max=MANIFEST_BYTES_MAX, run_id=run_id)

    @classmethod
    def basis(cls, manifest: Manifest) -> "Wanted":
        """Describe the basis of a run with a dense core."""
        sha256, total = manifest.method.basis_sha256, basis_bytes(manifest)
        return cls(name="basis", bytes_max=BASIS_BYTES_MAX, total=total, sha256=sha256)

    @classmethod
    def snapshot(cls, sha256: str, total: int) -> "Wanted":
        """Describe the snapshot that authors attest under this hash."""
        return cls(name="snapshot", bytes_max=SNAPSHOT_BYTES_MAX, total=total, sha256=sha256, is_total_claimed=True)

    @classmethod
    def data(cls, sha256: str, total: int) -> "Wanted":
        """Describe a run's public data, which its manifest names by this hash."""
        return cls(name="data", bytes_max=bounds.DATA_FILE_BYTES_MAX, total=total, sha256=sha256)

    @classmethod
    def piece(cls, sha256: str, total: int) -> "Wanted":
        """Describe a piece of a model's file, or the list of its pieces."""
        piece = cls(name="piece", bytes_max=total, total=total, sha256=sha256, is_of_one_peer=True)
        return replace(piece, parts_ahead=bounds.PIECE_PARTS_AHEAD)

    def request(self, offset: int) -> ManifestRequest | FileRequest:
        """Return the request for the part at an offset."""
        if self.sha256 is None:
            return ManifestRequest(offset=offset)
        return FileRequest(sha256=bytes.fromhex(self.sha256), offset=offset)

    def segment(self, start: int, bytes_max: int) -> "Wanted":
        """Describe the segment of this file from ``start`` on. ``bytes_max`` is a multiple of PART_BYTES_MAX."""
        assert self.total is not None and bytes_max % PART_BYTES_MAX == 0
        return replace(self, start=start, end=min(self.total, start + bytes_max))


class OtherRunError(Exception):
    """The node is in another run than the wanted one. Its text continues after "it" or the node's address."""

    def __init__(self, found: bytes, wanted: bytes) -> None:
        super().__init__(f"serves run {found.hex()[:16]}, not {wanted.hex()[:16]}")


class Download:
    """Downloads one document. If its hash is known, the bytes received so far survive a broken connection.

    If the parts of several peers together have a wrong hash, each peer is asked for the whole document: nobody knows
    which peer lied, and one liar must not spoil the others' parts again and again.

    Attributes:
        bytes_per_s_min: a slower peer is left after the first LEAST_PACE_S; 0 means no limit.
    """

    def __init__(
        self, wanted: Wanted, on_progress: Callable[[int, int], None] | None = None, pace: Pace | None = None
    ) -> None:
        """``on_progress`` is called after each part with the bytes received and the total.

        ``pace`` limits all downloads that share it together.
        """
        self.wanted = wanted
        self._pace = pace
        self._on_progress = on_progress
        self._received = bytearray()
        self._total = wanted.total
        self._is_whole_of_one = False
        self._received_of: dict[PeerId, bytearray] = {}  # by peer, if whole of one
        self.bytes_per_s_min = 0.0
        self._asked = 0  # offset up to which this connection was asked

    async def run(self, channel: Channel) -> bytes:
        """Download the missing parts from this peer and return the document.

        LinkBrokenError, RefusedError, Reject, OtherRunError.
        """
        if self.wanted.sha256 is None:
            self._restart()
        if self._is_whole_of_one:
            self._received = self._received_of.setdefault(channel.peer, bytearray())
        self._asked = first = self._next_offset
        started_s = trio.current_time()
        while self._end is None or self._next_offset < self._end:
            if self._pace is not None:
                await self._pace.wait(PART_BYTES_MAX)
            with trio.move_on_after(channel.timings.hello_s) as scope:
                await self._ask(channel)
                self._add_untrusted(await self._next(channel))
            if scope.cancelled_caught:
                raise RefusedError(f"no part of the {self.wanted.name} within {channel.timings.hello_s:.0f} s")
            taken_s = trio.current_time() - started_s
            if self._next_offset - first < self.bytes_per_s_min * (taken_s - bounds.LEAST_PACE_S):
                raise RefusedError(f"it gives less than {self.bytes_per_s_min / 1e3:.0f} kB/s. Trying another node")
        return self._checked()

    @property
    def _next_offset(self) -> int:
        return self.wanted.start + len(self._received)

    @property
    def _end(self) -> int | None:
        return self._total if self.wanted.end is None else self.wanted.end

    async def _ask(self, channel: Channel) -> None:
        """Keep several requests in flight, so that latency does not limit the rate; one while the end is unknown.

        Requests are sent in batches, because a write costs more than a request.
        """
        start, ahead = self._next_offset, self.wanted.parts_ahead * PART_BYTES_MAX
        if self._asked - start > ahead // 2:
            return
        end = start + 1 if self._end is None else min(self._end, start + ahead)
        offsets = range(self._asked, end, PART_BYTES_MAX)
        if offsets:
            self._asked += len(offsets) * PART_BYTES_MAX
            await channel.send_now(*(self.wanted.request(offset) for offset in offsets))

    async def _next(self, channel: Channel) -> ManifestPart | FilePart:
        match await channel.receive_untrusted():
            case ManifestPart() | FilePart() as part if isinstance(part, ManifestPart) == (self.wanted.sha256 is None):
                return part
            case Bye(reason=reason):
                raise RefusedError(f"it said bye instead of sending the {self.wanted.name}: {reason}")
            case None:
                raise RefusedError(f"it ended the session instead of sending the {self.wanted.name}")
            case other:
                # [REJECT] SPEC 8.1.3: nothing that was not asked for
                raise Reject(RejectReason.UNREQUESTED, f"{type(other).__name__} instead of the {self.wanted.name}")

    def _add_untrusted(self, part: ManifestPart | FilePart) -> None:
        if self.wanted.is_total_claimed and part.total != self.wanted.total:
            raise RefusedError(f"its {self.wanted.name} has {part.total} bytes, and authors attest {self.wanted.total}")
        # [REJECT] SPEC 8.1.4: parts answer the request, are as long as they can be, and the whole is what it must be
        total = part.total if self._total is None else self._total
        length = min(PART_BYTES_MAX, total - part.offset)
        is_part = part.offset == self._next_offset and len(part.data) == length and length > 0
        if self.wanted.name == "basis" and part.total != total:
            raise OtherReleaseError(RejectReason.MESSAGE_FIELD, f"{part.total:,} bytes, and {total:,} are due")
        if not is_part or part.total != total or total > self.wanted.bytes_max:
            detail = f"{self.wanted.name} part {part.offset}/{part.total} of {len(part.data)} bytes does not fit"
            raise Reject(RejectReason.MESSAGE_FIELD, detail)
        self._total = total
        self._received += part.data
        if self._on_progress is not None:
            self._on_progress(self._next_offset, total)

    def _checked(self) -> bytes:
        data = bytes(self._received)
        if self.wanted.end is not None:
            return data
        if self.wanted.sha256 is not None and hashlib.sha256(data).hexdigest() != self.wanted.sha256:
            self._restart()
            self._is_whole_of_one = True
            if self.wanted.is_of_one_peer:
                # [REJECT] SPEC 8.1.5: a piece that is not what its hash says is the fault of the peer that sent it
                raise Reject(RejectReason.MESSAGE_FIELD, f"a {self.wanted.name} with another hash than was asked for")
            raise RefusedError(f"what came is not the run's {self.wanted.name}: another hash. Starting again")
        if self.wanted.run_id is not None:
            found = decode_run_untrusted(data).manifest.run_id  # a hash of the content: hello may lie
            if found != self.wanted.run_id:
                raise OtherRunError(found, self.wanted.run_id)
        return data

    def _restart(self) -> None:
        self._received.clear()
        self._total = self.wanted.total


async def fetch(
    download: Download, addresses: tuple[Address, ...], *, on_failure: Callable[[DialReport], None] | None = None
) -> bytes:
    """Fetch a document from the nodes at these addresses and check its hash if that is known.

    It tries the addresses in turn without end, with growing pauses, under a new identity. It calls ``on_failure`` after
    each failure. Put a deadline around it to give up. OperatorError: no address, or all are of another run, version or
    release.
    """
    if not addresses:
        raise OperatorError("no bootstrap address: name at least one node of the run")
    report, lasting = on_failure or (lambda _report: None), dict[Address, str]()
    host = Host(identity_seed=secrets.token_bytes(32), on_inbound=lambda link: link.aclose())
    rounds = ((number, address) for number in itertools.count(1) for address in addresses)
    async with host.running(()):
        for attempt, address in rounds:
            if len(set(addresses)) > 1:  # halved in each round, because all nodes may be slow
                download.bytes_per_s_min = bounds.OBSERVER_BYTES_PER_S_MIN / 2 ** (attempt - 1)
            try:
                has_others = attempt == 1 and address != addresses[-1]
                return await _fetch_from(host, address, download, has_others)
            except OtherRunError as error:
                lasting[address] = f"{error}. Ask whoever gave you the address which run they mean"
                reason = f"it {error}"
            except RefusedError as error:
                reason = str(error)
                lasting |= {address: f"refuses this one: {reason}"} if error.is_lasting else {}
            except OtherReleaseError as error:
                said = f"gives a basis that was made with another release of sfnode: {error.detail}"
                lasting[address] = f"{said}. Use that one, or make the run anew"
                reason = f"it {said}"
            except (DialError, LinkBrokenError, Reject) as error:
                reason = str(error)
            if len(lasting) == len(set(addresses)):
                break
            longest_s = min(bounds.BACKOFF_BOOTSTRAP_MAX_S, 2.0 ** min(attempt, 10))
            pause_s = random.uniform(0.0, longest_s) if address == addresses[-1] else 0.0  # after a round of all
            report(DialReport(address=str(address), reason=reason, failures=attempt, retry_in_s=pause_s))
            await trio.sleep(pause_s)
    address, found = lasting.popitem()
    raise OperatorError(f"the node at {address} {found}")


async def _fetch_from(host: Host, address: Address, download: Download, has_others: bool) -> bytes:
    """Try one node once. DialError, LinkBrokenError, RefusedError, Reject, OtherRunError."""
    async with aclosing(await host.dial(address, has_others=has_others)) as link:
        channel, agent = Channel(link, Timings(), Traffic()), f"sfnode/{__version__}"
        await exchange_hello(channel, own_hello(run_id=OBSERVER_RUN_ID, agent=agent, listen=(), head_step=0))
        data = await download.run(channel)
        with suppress(LinkBrokenError):  # it may have left, and has given all
            await channel.send_now(Bye(reason="thank you"))
        return data
