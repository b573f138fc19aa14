"""The ledger and the model's state once more, from the specification: sets, plain integers and SHA-256, no NumPy.

Slow and literal on purpose; it shares no code with ``protocol/`` but the manifest's fields. For canonical cores only.
"""

from __future__ import annotations

import hashlib
import struct
from functools import lru_cache

from protocol.run.manifest import Manifest, TensorKind

_MASK = 0xFFFFFFFF
SPAN_STEPS = 1_024


def hash_fields(domain: str, *fields: bytes) -> bytes:
    """SPEC 2.1."""
    return hashlib.sha256(b"".join(struct.pack(">I", len(f)) + f for f in (domain.encode(), *fields))).digest()


def philox(counter: tuple[int, int, int, int], key: int) -> tuple[int, int, int, int]:
    """SPEC 3.1."""
    x0, x1, x2, x3 = counter
    k0, k1 = key & _MASK, key >> 32
    for i in range(10):
        high, low = x0 * 0xD2511F53, x2 * 0xCD9E8D57
        round_0, round_1 = (k0 + i * 0x9E3779B9) & _MASK, (k1 + i * 0xBB67AE85) & _MASK
        x0, x1, x2, x3 = (low >> 32) ^ x1 ^ round_0, low & _MASK, (high >> 32) ^ x3 ^ round_1, high & _MASK
    return x0, x1, x2, x3


class PlainModel:
    """A mapping of slots to sets of payloads, and what follows from it."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.slots: dict[tuple[bytes, int], set[bytes]] = {}
        self.admitted: set[bytes] = set()
        self.excluded: dict[bytes, int] = {}
        self.claims: dict[bytes, set[bytes]] = {}  # number of uses and token -> its first authors, one too many

    def add(self, payload: bytes) -> None:
        """A valid payload; a third one of a slot changes nothing."""
        held = self.slots.setdefault((payload[:32], int.from_bytes(payload[32:36], "big")), set())
        if len(held) < 2:
            held.add(payload)

    def add_statement(self, data: bytes) -> None:
        """A valid statement, SPEC 7.7."""
        kind, body = data[0], data[1:]
        if kind == 1:
            self.admitted.add(body[:32])
        elif kind == 2:
            step = int.from_bytes(body[32:36], "big")
            self.excluded[body[:32]] = min(step, self.excluded.get(body[:32], step))
        elif len(held := self.claims.setdefault(data[:33], set())) <= kind - 2:
            held.add(body[32:64])

    def is_counting(self, author: bytes, step: int) -> bool:
        """Whether a slot counts, unless it is void."""
        invited = [author for key, held in self.claims.items() if len(held) <= key[0] - 2 for author in held]
        is_admitted = self.manifest.admission.kind == "open" or author in self.admitted or author in invited
        return is_admitted and step < self.excluded.get(author, step + 1)

    @property
    def usable(self) -> dict[tuple[bytes, int], set[bytes]]:
        """The slots that the statements leave."""
        return {slot: payloads for slot, payloads in self.slots.items() if self.is_counting(*slot)}

    @property
    def authors(self) -> dict[bytes, int]:
        """Highest step of each."""
        return {author: max(step for a, step in self.usable if a == author) for author, _ in self.usable}

    @property
    def counting(self) -> list[bytes]:
        """Payloads that count, by step and author."""
        held = [(step, author, payloads) for (author, step), payloads in self.usable.items() if len(payloads) == 1]
        return [next(iter(payloads)) for _, _, payloads in sorted(held, key=lambda entry: entry[:2])]

    @property
    def void(self) -> int:
        """Number of void slots."""
        return sum(len(payloads) == 2 for payloads in self.usable.values())

    # --- digests

    def state_digest(self) -> bytes:
        """SPEC 7.4: the sum of what each counting payload adds."""
        flat: dict[int, list[int]] = {}
        for payload in self.counting:
            epoch = int.from_bytes(payload[32:36], "big") // self.manifest.method.epoch_steps
            values = flat.setdefault(epoch, [0] * self._size())
            for position, amount in contributions(self.manifest, payload):
                values[position] += amount
        fields: list[bytes] = []
        for epoch in sorted(flat):
            if any(flat[epoch]):
                packed = struct.pack(f"<{len(flat[epoch])}q", *flat[epoch])
                fields += [struct.pack(">I", epoch), hash_fields("sfnode/epoch/1", packed)]
        return hash_fields("sfnode/state/1", self.manifest.run_id, *fields)

    def _size(self) -> int:
        rank = self.manifest.method.rank
        return sum(rank if tensor.kind is TensorKind.VECTOR else rank**2 for tensor in self.manifest.tensors)

    def root(self) -> bytes:
        """SPEC 7.5, all levels from nothing."""
        spans: dict[int, dict[bytes, dict[int, bytes]]] = {}
        for (author, step), payloads in self.usable.items():
            slot = struct.pack(">I", step) if len(payloads) == 2 else next(iter(payloads))
            spans.setdefault(step // SPAN_STEPS, {}).setdefault(author, {})[step % SPAN_STEPS] = slot
        fields: list[bytes] = []
        for span in sorted(spans):
            fields += [struct.pack(">I", span), self._span(span, spans[span])]
        if self._statements():
            fields.append(hash_fields("sfnode/statements/1", *self._statements())[:16])
        return hash_fields("sfnode/ledger/1", self.manifest.run_id, *fields)

    def _statements(self) -> list[bytes]:
        """Keys and values, SPEC 7.5."""
        said = {b"\1" + author: b"" for author in self.admitted}
        said |= {b"\2" + author: struct.pack(">I", step) for author, step in self.excluded.items()}
        for key, held in self.claims.items():
            said[key] = b"".join(sorted(held)) if len(held) <= key[0] - 2 else b""
        return [part for key in sorted(said) for part in (key, said[key])]

    def _span(self, span: int, buckets: dict[bytes, dict[int, bytes]]) -> bytes:
        shards: dict[int, list[bytes]] = {}
        for author in sorted(buckets):
            bucket = bucket_digest(span, author, buckets[author])
            shards.setdefault(hash_fields("sfnode/author/1", author)[0], []).extend((author, bucket))
        fields: list[bytes] = []
        for shard in sorted(shards):
            fields += [bytes([shard]), hash_fields("sfnode/shard/1", *shards[shard])[:16]]
        return hash_fields("sfnode/span/1", *fields)[:16]


def bucket_digest(span: int, author: bytes, slots: dict[int, bytes]) -> bytes:
    """SPEC 7.5; ``slots``: by step within the span, the payload of one that counts, the bare step of a void one."""
    groups = []
    for start in range(0, max(slots, default=-1) + 1, 16):
        group = bytes(16)
        for offset in range(start, start + 16):
            if offset in slots:
                group = hash_fields("sfnode/group/1", group, slots[offset])[:16]
        groups.append(group)
    return hash_fields("sfnode/bucket/2", struct.pack(">I", span), author, b"".join(groups))[:16]


@lru_cache(maxsize=4_096)
def contributions(manifest: Manifest, payload: bytes) -> tuple[tuple[int, int], ...]:
    """SPEC 4.3 and 4.5: (flat position, amount) of every tensor, direction and local step of one payload."""
    method, rank = manifest.method, manifest.method.rank
    step, seed = struct.unpack_from(">IQ", payload, 32)
    scalars = struct.unpack_from(f">{method.directions * method.local_steps}h", payload, 44)
    found: list[tuple[int, int]] = []
    for number, scalar in enumerate(scalars):
        amount = scalar * _weight(manifest, step + number // method.directions)
        offset = 0
        for index, tensor in enumerate(manifest.tensors):
            word = philox((index // 8, number, 0, 1), seed)[index % 8 // 2]
            lane = word >> (16 * (index % 2)) & 0xFFFF
            row, column = lane % rank, lane // rank % rank
            is_vector = tensor.kind is TensorKind.VECTOR
            position = offset + (row if is_vector else row * rank + column)
            found.append((position, -amount if lane >> 15 else amount))
            offset += rank if is_vector else rank**2
    return tuple(found)


def _weight(manifest: Manifest, step: int) -> int:
    """SPEC 5.3, linear."""
    n = manifest.steps - 1
    first, last = manifest.schedule.weight_start, manifest.schedule.weight_end
    return (2 * (first * (n - step) + last * step) + n) // (2 * n)
