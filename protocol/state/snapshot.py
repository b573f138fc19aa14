"""A snapshot: the coefficients of all updates before a step, as a file, attested, and in use (SPEC 9.5).

It is not part of the ledger, the roster, a digest or a head. A joiner may show it to its worker while it replays; only
the result of the replay counts.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocol import limits
from protocol.crypto import KEY_BYTES, SIGNATURE_BYTES, Author, Digest, Signer, is_author_key, is_signed
from protocol.errors import Reject, RejectReason
from protocol.ledger import Envelope, Ledger
from protocol.run import Manifest, has_work
from protocol.state.coefficients import CoefficientLayout, Coefficients, fewest_bytes

_MAGIC = b"sfnode/snapshot1"
_SIGNED_TAG = b"sfnode/attested1"
_HEAD = struct.Struct(">16s32sI32sQ")  # magic, run id, step, ledger digest, slots
_EPOCH = struct.Struct(">IB")  # epoch, bytes of each coefficient
_WIDTHS = (1, 2, 4, 8)
_BODY = struct.Struct(">32sII32s")  # author, step, bytes of the file, its SHA-256


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of all updates of steps below ``step``, a multiple of SPAN_STEPS.

    Attributes:
        digest: of the ledger below ``step`` (:meth:`SlotTable.digest_before`).
        slots: number held below ``step``, void ones included.
        epochs: [layout.size] of each epoch whose coefficients are not all zero, in integers of the fewest bytes.
    """

    step: int
    digest: Digest
    slots: int
    epochs: Mapping[int, NDArray[np.signedinteger]]


# --- the file


def encode_snapshot(manifest: Manifest, snapshot: Snapshot) -> bytes:
    """Return a snapshot's canonical bytes: each epoch's coefficients in the fewest bytes that hold them all.

    Takes memory for these bytes alone if the coefficients have this width already.
    """
    head = _HEAD.pack(_MAGIC, manifest.run_id, snapshot.step, snapshot.digest, snapshot.slots)
    parts: list[bytes | memoryview] = [head]
    for epoch, flat in sorted(snapshot.epochs.items()):
        width = fewest_bytes(flat)
        parts += [_EPOCH.pack(epoch, width), flat.astype(f"<i{width}", copy=False).data]
    return b"".join(parts)


def decode_snapshot_untrusted(manifest: Manifest, data: bytes) -> Snapshot:
    """Decode the snapshot in the file ``data``. Raises Reject when it is not a snapshot of this run."""
    # [REJECT] SPEC 9.5.1: the bound and the beginning.
    if not _HEAD.size <= len(data) <= limits.SNAPSHOT_BYTES_MAX or not data.startswith(_MAGIC):
        raise Reject(RejectReason.SNAPSHOT_FORMAT, f"{len(data)} bytes that are not a snapshot")
    _, run_id, step, digest, slots = _HEAD.unpack_from(data)
    # [REJECT] SPEC 9.5.2: of this run.
    if run_id != manifest.run_id:
        raise Reject(RejectReason.RUN_ID, "the snapshot is of another run")
    _check_step(manifest, step)
    epochs = _decode_epochs(manifest, data, -(-step // manifest.method.epoch_steps))
    return Snapshot(step=step, digest=Digest(digest), slots=slots, epochs=epochs)


def _check_step(manifest: Manifest, step: int) -> None:
    # [REJECT] SPEC 9.5.3: the step is a multiple of a span's, within the run.
    if step % limits.SPAN_STEPS or not 0 < step < manifest.steps:
        raise Reject(RejectReason.SNAPSHOT_FORMAT, f"a snapshot of the steps before {step}")


def _decode_epochs(manifest: Manifest, data: bytes, epochs_end: int) -> dict[int, NDArray[np.signedinteger]]:
    size, offset = CoefficientLayout(manifest).size, _HEAD.size
    found: dict[int, NDArray[np.signedinteger]] = {}
    while offset < len(data):
        # [REJECT] SPEC 9.5.4: whole epochs, each with some coefficient, in the fewest bytes; ascending, below the step.
        head = data[offset : offset + _EPOCH.size].ljust(_EPOCH.size, b"\0")
        epoch, width = _EPOCH.unpack(head)
        offset += _EPOCH.size + size * width
        if width not in _WIDTHS or offset > len(data) or epoch >= epochs_end:
            raise Reject(RejectReason.SNAPSHOT_FORMAT, "an epoch that is cut off, or beyond the step")
        flat = np.frombuffer(data, dtype=f"<i{width}", count=size, offset=offset - size * width)
        if not flat.any() or fewest_bytes(flat) != width:
            raise Reject(RejectReason.SNAPSHOT_FORMAT, f"epoch {epoch} is not in its canonical form")
        # [REJECT] SPEC 9.5.4: no more rows than the authors can have, and sums that such rows can have.
        if manifest.method.is_dense:
            rows, largest = int(flat[0]), max(int(flat[1:].max()), -int(flat[1:].min()))
            if rows > manifest.authors_max * manifest.method.directions or largest > manifest.method.clip * rows:
                raise Reject(RejectReason.SNAPSHOT_FORMAT, f"a step of {rows} rows with a sum of {largest}")
        if found and epoch <= next(reversed(found)):
            raise Reject(RejectReason.SNAPSHOT_FORMAT, "epochs that do not ascend")
        found[epoch] = flat
    return found


# --- attestations


@dataclass(frozen=True, slots=True, kw_only=True)
class Attestation:
    """One author's statement that the snapshot of the steps below ``step`` is a file of this length and hash."""

    author: Author
    step: int
    file_bytes: int
    sha256: bytes
    data: bytes

    @property
    def claim(self) -> tuple[int, int, bytes]:
        """Return step, length and hash, which several authors can agree on."""
        return self.step, self.file_bytes, self.sha256


class AttestationCodec:
    """Makes, decodes and checks the attestations of one run."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._prefix = _SIGNED_TAG + manifest.run_id

    def attest(self, signer: Signer, step: int, file_bytes: int, sha256: bytes) -> Attestation:
        body = _BODY.pack(signer.author, step, file_bytes, sha256)
        return self.decode_untrusted(body + signer.sign(self._prefix + body))

    def decode_untrusted(self, data: bytes) -> Attestation:
        """Decode an attestation and check everything but key and signature. Raises Reject."""
        # [REJECT] SPEC 9.5.5: the length, the step, and a file within the bound.
        if len(data) != limits.ATTESTATION_BYTES:
            raise Reject(RejectReason.SNAPSHOT_FORMAT, f"an attestation of {len(data)} bytes")
        author, step, file_bytes, sha256 = _BODY.unpack_from(data)
        _check_step(self._manifest, step)
        if not _HEAD.size <= file_bytes <= limits.SNAPSHOT_BYTES_MAX:
            raise Reject(RejectReason.SNAPSHOT_FORMAT, f"a snapshot of {file_bytes} bytes")
        return Attestation(author=Author(author), step=step, file_bytes=file_bytes, sha256=sha256, data=data)

    def check_signed(self, attestation: Attestation) -> None:
        """Check the costly rules: key, work and signature. Raises Reject."""
        # [REJECT] SPEC 9.5.9: a valid key, with the work that the run asks for; and its signature.
        if not is_author_key(attestation.author):
            raise Reject(RejectReason.AUTHOR_KEY, "an attestation under a key that is not a valid Ed25519 key")
        if not has_work(self._manifest.admission, self._manifest.run_id, attestation.author):
            raise Reject(RejectReason.AUTHOR_WORK, "an attestation under a key without the work that the run asks for")
        body, signature = attestation.data[: _BODY.size], attestation.data[_BODY.size :]
        if not is_signed(attestation.author, self._prefix + body, signature):
            raise Reject(RejectReason.SIGNATURE, f"attestation of {attestation.author.hex()[:16]}: bad signature")


# --- use


class SnapshotOverlay:
    """Shows a joiner's worker a snapshot and the updates that follow it, while the replica replays.

    It changes neither the replica's coefficients nor any digest.
    """

    def __init__(self, manifest: Manifest, snapshot: Snapshot, ledger: Ledger) -> None:
        """Start from ``snapshot`` and the later updates in ``ledger``; call :meth:`follow` at each change."""
        self.snapshot = snapshot
        self._coefficients = Coefficients(manifest)
        for epoch, flat in snapshot.epochs.items():
            self._coefficients.set_flat(epoch, flat)
        self._to_add = list(ledger.slots.envelopes(from_step=snapshot.step))
        self._to_remove: list[Envelope] = []

    def follow(self, added: Iterable[Envelope], removed: Iterable[Envelope]) -> None:
        """Account for updates that the replica accepted or no longer counts, unless the snapshot covers their steps."""
        self._to_add += filter(self._is_later, added)
        self._to_remove += filter(self._is_later, removed)

    def _is_later(self, update: Envelope) -> bool:
        return update.step >= self.snapshot.step

    def coefficients(self) -> Coefficients:
        """Return the coefficients of the snapshot with all updates that follow it."""
        self._coefficients.add(self._to_add)
        self._coefficients.remove(self._to_remove)
        self._to_add, self._to_remove = [], []
        return self._coefficients


assert _BODY.size == KEY_BYTES + 4 + 4 + 32 == limits.ATTESTATION_BYTES - SIGNATURE_BYTES
