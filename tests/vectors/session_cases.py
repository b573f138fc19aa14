"""Vectors of the session rules (SPEC 8.1.1 to 8.1.5): a peer's messages in, verdicts and the node's own words out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

import trio

from protocol.errors import Reject
from protocol.limits import FRAME_BYTES_MAX, MANIFEST_BYTES_MAX, PART_BYTES_MAX
from protocol.wire import (
    VERSION,
    Bye,
    FilePart,
    FileRequest,
    Head,
    Hello,
    ManifestPart,
    ManifestRequest,
    Message,
    PeerAddress,
    Peers,
    PeersRequest,
    Ping,
    Pong,
    Records,
    SpansRequest,
    decode_untrusted,
    encode,
)
from sfnode.network.network_config import Timings
from sfnode.network.sessions import RefusedError
from sfnode.network.sessions.channel import Channel
from sfnode.network.sessions.file_download import Download, Wanted
from tests.vectors.notation import Case, Document, case, document
from tests.vectors.session_nodes import ASK_PEERS, Served, in_short, played

_RUN_ID = bytes(range(32))
_MANIFEST = b"m" * (PART_BYTES_MAX + 5)
_FILE = b"f" * (PART_BYTES_MAX + 3)
_FILE_HASH = hashlib.sha256(_FILE).digest()
_PIECE = b"a piece of the model"
_PIECE_HASH = hashlib.sha256(_PIECE).digest()
_HELLO = Hello(version=VERSION, run_id=_RUN_ID, agent="other", listen=(), head_step=3)
_OBSERVER = replace(_HELLO, run_id=bytes(32))
_HEAD = Head(root=bytes(32), state_digest=bytes(32), updates=0, step=0, work_distance=0)
_PEERS = Peers(peers=(PeerAddress(peer="12D3KooW", addresses=("/ip4/192.0.2.9/tcp/4001",)),))


def sessions() -> Document:
    """sessions.json"""
    groups = (_dialled, _dialler, _neighbour, _observer, _beside, _parts)
    about = "The handshake, what is said in which session, and documents in parts: SPEC 8.1.1 to 8.1.5"
    return document(about, [made for group in groups for made in group()])


def _session(name: str, role: str, *steps: Message | bytes, expect: str | None = None, is_over: bool = False) -> Case:
    """``expect``, ``is_over``: the reason for which the last step is refused, and whether the node has ended it all."""
    sent = [step if isinstance(step, bytes) else encode(step) for step in steps]
    files, pieces = ({hashlib.sha256(data).hexdigest(): Served(data)} for data in (_FILE, _PIECE))
    hello, found = played(role, sent, run_id=_RUN_ID, manifest=_MANIFEST, files=files, pieces=pieces)
    last = found[-1]
    assert (last["reason"], last["is_over"]) == (expect, is_over or expect is not None), (name, last)
    documents = {"manifest": in_short(_MANIFEST), "files": [in_short(_FILE)], "pieces": [in_short(_PIECE)]}
    told = [{"ask": "peers"} if step == ASK_PEERS else {"message": in_short(step)} for step in sent]
    given = {"role": role, "hello": encode(hello).hex(), **documents, "steps": told}
    return case(f"{role}: {name}", "session", given, {"begin": found[0], "steps": found[1:]})


def _dialled() -> Iterator[Case]:
    yield _session("Hello", "dialled", _HELLO)
    for name, message in {
        "Ping": Ping(nonce=1),
        "Peers": _PEERS,
        "PeersRequest": PeersRequest(),
        "Records": Records(request=0, data=b""),
        "ManifestRequest": ManifestRequest(offset=0),
    }.items():
        yield _session(f"{name} before Hello", "dialled", message, expect="UNREQUESTED")
    yield _session("Bye before Hello", "dialled", Bye(reason="never mind"), is_over=True)
    yield _session("no message", "dialled", b"\xc0", expect="FRAME")
    yield _session("no kind", "dialled", b"\x91\x7f", expect="MESSAGE_KIND")
    long = replace(_HELLO, listen=("a" * 256,) * 4)
    yield _session("a Hello over 1,024 bytes", "dialled", long, expect="FRAME")
    yield _session("a second Hello", "dialled", _HELLO, _HELLO, expect="UNREQUESTED")
    yield _session("another run", "dialled", replace(_HELLO, run_id=b"x" * 32), is_over=True)
    for version in (VERSION - 1, VERSION + 1):
        yield _session(f"version {version}", "dialled", replace(_HELLO, version=version), is_over=True)
    both = replace(_HELLO, version=VERSION + 1, run_id=b"x" * 32)
    yield _session("another version and another run", "dialled", both, is_over=True)


def _dialler() -> Iterator[Case]:
    yield _session("Hello", "dialler", _HELLO)
    yield _session("Peers, then Bye", "dialler", _PEERS, Bye(reason="full"), is_over=True)
    yield _session("Peers, then Hello", "dialler", _PEERS, _HELLO)
    yield _session("Peers before Hello, twice", "dialler", _PEERS, _PEERS, expect="UNREQUESTED")
    yield _session("the Hello of an observer", "dialler", _OBSERVER, is_over=True)
    yield _session("Bye", "dialler", Bye(reason="not now"), is_over=True)
    for name, message in {"Ping": Ping(nonce=1), "Head": _HEAD, "ManifestPart": _part(0, 5)}.items():
        yield _session(f"{name} before Hello", "dialler", message, expect="UNREQUESTED")
    yield _session("Peers after Hello", "dialler", _HELLO, _PEERS, expect="UNREQUESTED")
    yield _session("a second Hello", "dialler", _HELLO, _HELLO, expect="UNREQUESTED")
    yield _session("another run", "dialler", replace(_HELLO, run_id=b"x" * 32), is_over=True)
    yield _session("another version", "dialler", replace(_HELLO, version=VERSION + 1), is_over=True)


def _neighbour() -> Iterator[Case]:
    """Both have said Hello."""
    yield _session("pings are answered", "dialled", _HELLO, Ping(nonce=1), Ping(nonce=(1 << 64) - 1))
    yield _session("a Pong that answers nothing", "dialled", _HELLO, Pong(nonce=9))
    yield _session("Bye", "dialled", _HELLO, Bye(reason="the node stops"), is_over=True)
    yield _session("Head, a request and Records are for the node", "dialled", _HELLO, _HEAD, SpansRequest(request=5))
    large = Records(request=0, data=bytes(FRAME_BYTES_MAX - 64))
    yield _session("a message over 1,024 bytes after Hello", "dialled", _HELLO, large)
    yield _session("PeersRequest is answered", "dialled", _HELLO, PeersRequest())
    yield _session("Peers, not asked for", "dialled", _HELLO, _PEERS, expect="UNREQUESTED")
    yield _session("Peers, asked for", "dialled", _HELLO, ASK_PEERS, _PEERS)
    yield _session("Peers, asked for once", "dialled", _HELLO, ASK_PEERS, _PEERS, _PEERS, expect="UNREQUESTED")
    yield _session("the manifest is given", "dialled", _HELLO, ManifestRequest(offset=0))
    for name, message in {
        "ManifestPart": _part(0, 5),
        "FilePart": FilePart(total=5, offset=0, data=b"fffff"),
        "FileRequest": FileRequest(sha256=_FILE_HASH, offset=0),
    }.items():
        yield _session(f"{name} within a session", "dialled", _HELLO, message, expect="UNREQUESTED")


def _asked(sha256: bytes = _FILE_HASH, offset: int = 0) -> FileRequest:
    return FileRequest(sha256=sha256, offset=offset)


_NO_FILE = bytes(32)
_WRONG: dict[str, Message] = {
    "PeersRequest": PeersRequest(),
    "Head": _HEAD,
    "SpansRequest": SpansRequest(request=1),
    "Records": Records(request=0, data=b""),
    "Pong": Pong(nonce=1),
    "ManifestPart": ManifestPart(total=1, offset=0, data=b"m"),
}


def _observer() -> Iterator[Case]:
    role = "dialled"
    yield _session("an observer", role, _OBSERVER)
    whole = ManifestRequest(offset=0), ManifestRequest(offset=PART_BYTES_MAX)
    yield _session("an observer takes the manifest", role, _OBSERVER, *whole)
    yield _session("an observer takes a file", role, _OBSERVER, _asked(), _asked(offset=PART_BYTES_MAX))
    yield _session("an observer asks beyond the end", role, _OBSERVER, ManifestRequest(offset=len(_MANIFEST)))
    yield _session("an observer asks for a file beyond its end", role, _OBSERVER, _asked(offset=len(_FILE) + 1))
    yield _session("an observer asks for a file that is not there", role, _OBSERVER, _asked(_NO_FILE), is_over=True)
    yield _session("an observer asks for a piece of the model", role, _OBSERVER, _asked(_PIECE_HASH), is_over=True)
    yield _session("an observer pings", role, _OBSERVER, Ping(nonce=5))
    yield _session("an observer says Bye", role, _OBSERVER, Bye(reason="thank you"), is_over=True)
    long = Bye(reason="\U0001f600" * 256)
    yield _session("an observer says more than 1,024 bytes", role, _OBSERVER, long, expect="FRAME")
    for name, message in _WRONG.items():
        yield _session(f"an observer says {name}", role, _OBSERVER, message, expect="UNREQUESTED")
    yield _session("an observer says Hello again", role, _OBSERVER, _OBSERVER, expect="UNREQUESTED")
    old = replace(_OBSERVER, version=VERSION + 1)
    yield _session("an observer of another version", role, old, is_over=True)


def _beside() -> Iterator[Case]:
    """On a stream of /sfnode/files/1 of a neighbour."""
    yield _session("the first message is a request", "beside", _asked(), _asked(offset=PART_BYTES_MAX))
    yield _session("the manifest", "beside", ManifestRequest(offset=0))
    yield _session("Ping", "beside", Ping(nonce=5))
    yield _session("Bye", "beside", Bye(reason="thank you"), is_over=True)
    yield _session("a piece of the model", "beside", _asked(_PIECE_HASH), _asked())
    yield _session("a file that is not there", "beside", _asked(_NO_FILE), is_over=True)
    for name, message in {**_WRONG, "Hello": _HELLO}.items():
        yield _session(name, "beside", message, expect="UNREQUESTED")


# --- documents in parts


def _part(offset: int, total: int = len(_MANIFEST), data: bytes | None = None) -> ManifestPart:
    return ManifestPart(
        total=total, offset=offset, data=bytes(min(PART_BYTES_MAX, total - offset)) if data is None else data
    )


class _Answers:
    """A channel whose other end answers with these messages, and then ends the session."""

    timings = Timings()

    def __init__(self, messages: Sequence[bytes]) -> None:
        self._messages = list(messages)

    async def send_now(self, *messages: Message) -> None: ...

    async def receive_untrusted(self) -> Message | None:
        return decode_untrusted(self._messages.pop(0)) if self._messages else None


def _document(name: str, wanted: Wanted, *messages: Message, expect: str | None = None) -> Case:
    sent = [encode(message) for message in messages]
    received = 0

    def progress(so_far: int, _total: int) -> None:
        nonlocal received
        received = so_far

    async def main() -> tuple[str | None, bool]:
        channel: Channel = _Answers(sent)  # type: ignore[assignment]
        try:
            await Download(wanted, progress).run(channel)
        except Reject as reject:
            return reject.reason.name, False
        except RefusedError:
            return None, False
        return None, True

    reason, is_whole = trio.run(main)
    assert reason == expect, (name, reason)
    found = {"verdict": "REJECT" if reason else "ACCEPT", "reason": reason, "is_whole": is_whole, "received": received}
    kind = "manifest" if wanted.sha256 is None else "piece" if wanted.is_of_one_peer else "file"
    given: dict[str, object] = {"document": kind, "total": wanted.total, "sha256": wanted.sha256}
    given |= {"messages": [in_short(data) for data in sent]}
    return case(f"{kind}: {name}", "parts", given, found)


def _parts() -> Iterator[Case]:
    total = len(_MANIFEST)
    first, second = _part(0), _part(PART_BYTES_MAX)
    good: dict[str, tuple[Message, ...]] = {
        "two parts": (first, second),
        "one part of one byte": (_part(0, 1),),
        "one part of 32,768 bytes": (_part(0, PART_BYTES_MAX),),
        "the largest": tuple(_part(at, MANIFEST_BYTES_MAX) for at in range(0, MANIFEST_BYTES_MAX, PART_BYTES_MAX)),
        "the session ends between": (first,),
        "Bye between": (first, Bye(reason="the node stops")),
    }
    for name, messages in good.items():
        yield _document(name, Wanted.manifest(None), *messages)
    refused: dict[str, tuple[Message, ...]] = {
        "a part that does not start where asked": (_part(1),),
        "the second part first": (second,),
        "the same part again": (first, first),
        "a part that could be longer": (_part(0, total, bytes(PART_BYTES_MAX - 1)),),
        "a last part that is too short": (first, _part(PART_BYTES_MAX, total, bytes(4))),
        "a last part that is too long": (first, _part(PART_BYTES_MAX, total, bytes(6))),
        "a part without a byte": (_part(0, total, b""),),
        "of no bytes": (_part(0, 0),),
        "another total in the second part": (first, _part(PART_BYTES_MAX, total + 1)),
        "over 1 MiB": (_part(0, MANIFEST_BYTES_MAX + 1),),
    }
    for name, messages in refused.items():
        yield _document(name, Wanted.manifest(None), *messages, expect="MESSAGE_FIELD")
    file_part = FilePart(total=5, offset=0, data=bytes(5))
    for name, messages in {"FilePart": (file_part,), "Head": (first, _HEAD), "Ping": (Ping(nonce=1),)}.items():
        yield _document(f"{name} instead", Wanted.manifest(None), *messages, expect="UNREQUESTED")
    digest = hashlib.sha256(bytes(5)).hexdigest()
    wanted = Wanted(name="basis", bytes_max=5, total=5, sha256=digest)
    yield _document("of the length that is known", wanted, file_part)
    yield _document("another hash", wanted, replace(file_part, data=b"f" * 5))
    for size in (4, 6):
        other = FilePart(total=size, offset=0, data=bytes(size))
        yield _document(f"{size} bytes instead of 5", wanted, other, expect="MESSAGE_FIELD")
    yield _document("ManifestPart instead", wanted, _part(0, 5), expect="UNREQUESTED")
    piece = Wanted.piece(_PIECE_HASH.hex(), len(_PIECE))
    right = FilePart(total=len(_PIECE), offset=0, data=_PIECE)
    yield _document("as asked", piece, right)
    yield _document("another hash", piece, replace(right, data=_PIECE[::-1]), expect="MESSAGE_FIELD")
    yield _document("another length", piece, FilePart(total=5, offset=0, data=bytes(5)), expect="MESSAGE_FIELD")
