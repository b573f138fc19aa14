"""The slots that are held of one author, or of all authors, in one span, and their digests (SPEC 7.5).

These are the inner levels of a tree of digests, from which two ledgers find their differences. From the top:

    root        of all spans, and of the statements             Ledger.root
    span        of its shards that hold anything                Span.digest
    shard       of the authors whose hash has one first byte    Span.shard_digests
    bucket      of one author's groups of slots in the span     Bucket.digest
    group       of 16 slots, linked in the order of steps       Bucket._linked

A digest is computed when it is asked for, and kept until something below it changes. So a new update costs one link and
one hash for each level, in a ledger of any size. The ledger decides what may come in.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from operator import itemgetter

from protocol import limits
from protocol.crypto import SIGNATURE_BYTES, Author, hashing
from protocol.ledger.archived_records import Checks, ReadBack, Slot, group_of, records_of, slots_in
from protocol.wire import AuthorHoldings

INNER_DIGEST_BYTES = 16
PAYLOAD_HASH_BYTES = 8

# Slots are named by their step within the span. These very objects are the keys: 32 bytes less for each record held.
_OFFSETS = tuple(range(limits.SPAN_STEPS))
_FULL = (1 << limits.SPAN_STEPS) - 1  # one object for all buckets in which every slot counts
_NO_SLOTS = bytes(INNER_DIGEST_BYTES)  # the digest of a group that holds nothing


class Bucket:
    """Holds one author's slots in one span, by offset, and their digest.

    The digests of its groups of slots are always up to date. The author's next slot costs one link of a hash chain. A
    slot that comes late or becomes void hashes its group anew. So no slot costs more than reading a group back.

    With an archive, records that it gives back need not stay in memory. The bitmaps ``valid`` and ``void``, with bit
    ``offset`` for each slot, always show what is held.
    """

    __slots__ = ("_archive", "_author", "_checks", "_digest", "_groups", "_slots", "_span", "valid", "void")

    def __init__(self, span: int, author: Author, archive: ReadBack | None = None) -> None:
        self.valid = 0
        self.void = 0
        self._slots: dict[int, Slot] = {}  # those in memory
        self._span = span
        self._author = author
        self._archive = archive
        self._checks = Checks()
        self._groups = b""  # the digests of all groups up to the last one that holds anything
        self._digest: bytes | None = None  # None after a change

    @property
    def held(self) -> int:
        """Return the bitmap of the slots that hold anything."""
        return self.valid | self.void

    def put(self, offset: int, slot: Slot) -> None:
        """Fill a slot, or void it with a pair of records whose second is the new one."""
        # The newest slot adds a link to its group's hash chain; any other change hashes the group anew.
        if offset >= self.held.bit_length():
            self._set_group(offset, self._linked(self._groups[_place_of(offset) :] or _NO_SLOTS, offset, slot))
        else:
            near = dict(self.by_step(_bits_in(group_of(offset)))) | {offset: slot}
            self._set_group(offset, self._chained(near))
        self._slots[_OFFSETS[offset]] = slot
        bit = 1 << offset
        if isinstance(slot, tuple):
            self.valid &= ~bit
            self.void |= bit
        else:
            self.valid |= bit
        if self._archive:
            self._archive.group = None
            self._checks.add(offset, records_of(slot)[-1])

    def drop_from(self, offset: int) -> list[Slot]:
        """Empty the slots from ``offset`` on and return their content by step."""
        kept = (1 << offset) - 1
        dropped = self.by_step(self.held & ~kept)
        self._groups, self._digest = self._groups_within(kept), None
        for each, slot in dropped:
            self._slots.pop(each, None)
            if self._archive:
                self._archive.group = None
                self._checks.remove(each, slot)
        self.valid &= kept
        self.void &= kept
        return [slot for _, slot in dropped]

    def get(self, offset: int) -> Slot | None:
        """Return the content of a slot, None when it is empty."""
        found = self._slots.get(offset)
        if found is None and self.held >> offset & 1:
            found = self._read([offset])[offset]
        return found

    def by_step(self, steps: int) -> list[tuple[int, Slot]]:
        """Return the slots in the bitmap ``steps`` that hold anything, in the order of their steps."""
        steps &= self.held
        wanted = bits_of(steps) if steps else []
        missing = [offset for offset in wanted if offset not in self._slots]
        slots = self._slots | self._read(missing) if missing else self._slots
        return [(offset, slots[offset]) for offset in wanted]

    # --- archive ------------------------------------------------------------------------------------------

    def forget(self, offsets: Iterable[int]) -> list[int]:
        """Drop from memory the slots that the archive gives back, and return those that it does not."""
        assert self._archive
        asked = sorted({offset for offset in offsets if offset in self._slots})
        given = slots_in(self._archive.archive.read(self._author, [self._step(offset) for offset in asked]))
        kept = [offset for offset in asked if given.get(offset) != self._slots[offset]]
        gone = set(asked).difference(kept)
        # A new dict, because a large one keeps its size when it is emptied.
        self._slots = {offset: slot for offset, slot in self._slots.items() if offset not in gone}
        self.valid = _FULL if self.valid == _FULL else self.valid
        return kept

    def _read(self, offsets: list[int]) -> dict[int, Slot]:
        """Return these slots and the rest of their groups. Raises StorageDamagedError when they have changed."""
        assert self._archive
        groups = list(dict.fromkeys(map(group_of, offsets)))
        first = (self._author, self._step(groups[0].start))
        if len(groups) == 1 and self._archive.group == first:
            return self._archive.slots
        held = self.held
        near = [offset for group in groups for offset in group if held >> offset & 1]
        asked = [offset for offset in near if offset not in self._slots]
        slots = slots_in(self._archive.archive.read(self._author, [self._step(offset) for offset in asked]))
        slots |= {offset: self._slots[offset] for offset in near if offset in self._slots}
        missing = set(asked).difference(slots)
        for group in groups:
            if not missing.isdisjoint(group) or not self._checks.fits(group, slots):
                steps = f"{self._step(group.start)} to {self._step(group.stop - 1)}"
                text = f"updates of author {self._author.hex()[:16]}, steps {steps}, are not what was stored"
                raise self._archive.archive.damage(text)
        if len(groups) == 1:
            self._archive.group, self._archive.slots = first, slots
        return slots

    # --- digest -------------------------------------------------------------------------------------------

    def digest(self) -> bytes:
        """Return the hash of the digests of the groups (SPEC 7.5)."""
        if self._digest is None:
            self._digest = self._digest_over(self._groups)
        return self._digest

    def digest_within(self, steps: int) -> bytes:
        """Return the digest as if only the slots in the bitmap were held. Groups whole or empty then cost nothing."""
        return self._digest_over(self._groups_within(steps)) if self.held & ~steps else self.digest()

    def groups_cut(self, steps: int) -> int:
        """Return the number of groups that `digest_within` reads back: those that lose some slots and keep some."""
        left, lost = self.held & steps, self.held & ~steps
        groups = map(_bits_in, map(group_of, range(0, limits.SPAN_STEPS, limits.GROUP_STEPS))) if lost else ()
        return sum(bool(group & left and group & lost) for group in groups)

    def _digest_over(self, groups: bytes) -> bytes:
        return inner_digest("sfnode/bucket/2", hashing.u32(self._span), self._author, groups)

    def _groups_within(self, steps: int) -> bytes:
        """Return the digests of the groups as if only the slots in the bitmap were held."""
        left = self.held & steps
        # Only groups that lose a slot are hashed anew; the digests of the others stay.
        cut = dict.fromkeys(map(group_of, bits_of(self.held & ~steps)))
        near = dict(self.by_step(left & sum(map(_bits_in, cut))))
        groups = bytearray(self._groups)
        for group in cut:
            place = _place_of(group.start)
            groups[place : place + INNER_DIGEST_BYTES] = self._chained(
                {each: near[each] for each in group if each in near}
            )
        return bytes(groups[: _place_of(left.bit_length() - 1) + INNER_DIGEST_BYTES]) if left else b""

    def _set_group(self, offset: int, digest: bytes) -> None:
        """Set the digest of the group of the slot at ``offset``."""
        place, groups = _place_of(offset), self._groups
        self._groups = groups[:place].ljust(place, b"\0") + digest + groups[place + INNER_DIGEST_BYTES :]
        self._digest = None

    def _chained(self, slots: dict[int, Slot]) -> bytes:
        """Return the digest of a group in which these slots are held."""
        digest = _NO_SLOTS
        for offset, slot in sorted(slots.items()):
            digest = self._linked(digest, offset, slot)
        return digest

    def _linked(self, digest: bytes, offset: int, slot: Slot) -> bytes:
        """Return the digest of a group that had ``digest`` before this slot came at its end."""
        field = slot[:-SIGNATURE_BYTES] if isinstance(slot, bytes) else hashing.u32(self._step(offset))
        return hashing.hash_fields("sfnode/group/1", digest, field)[:INNER_DIGEST_BYTES]

    def _step(self, offset: int) -> int:
        return self._span * limits.SPAN_STEPS + offset


class Span:
    """Holds the buckets of one span by shard and author, and the digests over them (absent for changed shards)."""

    __slots__ = ("_archive", "_digest", "_number", "_shard_digests", "_shards")

    def __init__(self, number: int, archive: ReadBack | None) -> None:
        self._number = number
        self._archive = archive
        self._shards: dict[int, dict[Author, Bucket]] = {}
        self._shard_digests: dict[int, bytes] = {}
        self._digest: bytes | None = None

    def get(self, author: Author) -> Bucket | None:
        """Return the author's bucket if it holds anything, else None."""
        return self._shards.get(shard_of(author), {}).get(author)

    def put(self, author: Author, offset: int, slot: Slot) -> None:
        """Fill a slot of the author, or void it with a pair of records."""
        shard = shard_of(author)
        members = self._shards.setdefault(shard, {})
        if author not in members:
            members[author] = Bucket(self._number, author, self._archive)
        members[author].put(offset, slot)
        self._shard_digests.pop(shard, None)
        self._digest = None

    def drop_from(self, author: Author, offset: int) -> list[Slot]:
        """Empty the author's slots from ``offset`` on and return their content by step."""
        shard = shard_of(author)
        members = self._shards.get(shard, {})
        bucket = members.get(author)
        if bucket is None:
            return []
        dropped = bucket.drop_from(offset)
        if not bucket.held:
            del members[author]
        if not members:
            del self._shards[shard]
        self._shard_digests.pop(shard, None)
        self._digest = None
        return dropped

    @property
    def is_empty(self) -> bool:
        return not self._shards

    def buckets(self) -> Iterator[tuple[Author, Bucket]]:
        """Yield every author and its bucket, in no particular order."""
        for members in self._shards.values():
            yield from members.items()

    def buckets_of(self, shards: frozenset[int]) -> list[tuple[Author, Bucket]]:
        """Return the authors and buckets in the named shards, ascending by author."""
        chosen = [item for shard in sorted(shards) for item in self._shards.get(shard, {}).items()]
        return sorted(chosen, key=itemgetter(0))

    def shard_digests(self) -> list[tuple[int, bytes]]:
        """Return (shard, 16-byte digest) of every shard that holds anything, ascending."""
        for shard in sorted(self._shards.keys() - self._shard_digests.keys()):
            parts = [
                part for author, bucket in sorted(self._shards[shard].items()) for part in (author, bucket.digest())
            ]
            self._shard_digests[shard] = inner_digest("sfnode/shard/1", *parts)
        return sorted(self._shard_digests.items())

    def digest(self) -> bytes:
        """Return the span's digest (SPEC 7.5)."""
        if self._digest is None:
            fields = [part for shard, digest in self.shard_digests() for part in (bytes([shard]), digest)]
            self._digest = inner_digest("sfnode/span/1", *fields)
        return self._digest


@lru_cache(maxsize=4_096)
def shard_of(author: bytes) -> int:
    """Return the shard of an author, 0 ... 255: the first byte of its hash, so that crowding a shard costs work."""
    return hashing.hash_fields("sfnode/author/1", author)[0]


def bitmap_of(steps: list[int]) -> bytes:
    """Return a bitmap of SPAN_STEPS bits with bit ``step % SPAN_STEPS`` set for each step."""
    bits = 0
    for step in steps:
        bits |= 1 << (step % limits.SPAN_STEPS)
    return bits.to_bytes(limits.SPAN_STEPS // 8, "little")


def bits_of(bitmap: int) -> list[int]:
    """Return the numbers of the bits that are set, ascending."""
    first = max(0, (bitmap & -bitmap).bit_length() - 1)  # shift first: most bitmaps have bits in one group only
    return [index for index, bit in enumerate(bin(bitmap >> first)[:1:-1], first) if bit == "1"]


def _bits_in(group: range) -> int:
    """Return the bitmap of the slots in a group."""
    return (1 << group.stop) - (1 << group.start)


def _place_of(offset: int) -> int:
    """Return where the digest of the slot's group begins among those of its bucket, in bytes."""
    return offset // limits.GROUP_STEPS * INNER_DIGEST_BYTES


def holdings_in(author: Author, bucket: Bucket) -> AuthorHoldings:
    """Describe one author's bucket for the wire."""
    return AuthorHoldings(
        author=author,
        digest=bucket.digest(),
        valid=bucket.valid.to_bytes(limits.SPAN_STEPS // 8, "little"),
        void=bucket.void.to_bytes(limits.SPAN_STEPS // 8, "little"),
    )


def payload_hash(record: bytes) -> bytes:
    """Return the bytes by which two payloads of one slot are compared (SPEC 8.4.4)."""
    return hashing.hash_fields("sfnode/payload/1", record[:-SIGNATURE_BYTES])[:PAYLOAD_HASH_BYTES]


def inner_digest(domain: str, *fields: bytes) -> bytes:
    """Return :func:`hash_fields`, cut to the length of all digests below the root."""
    return hashing.hash_fields(domain, *fields)[:INNER_DIGEST_BYTES]
