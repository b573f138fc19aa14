"""The run manifest: everything that all nodes of a run must agree on, as one signed document (SPEC 1).

The run id is a hash of the canonical bytes. A field that this version does not know is refused, never skipped: a node
that ignored one would compute another model.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Annotated

from protocol import limits
from protocol.crypto import SIGNATURE_BYTES, Author, RunId, Signer, hashing, is_author_key, is_signed
from protocol.errors import Reject, RejectReason
from protocol.run.admission import AdmissionKind, AdmissionSpec
from protocol.run.method import CoreKind, Method, Schedule, broken_method_rules
from protocol.run.model import ModelSpec, broken_model_rules
from protocol.run.reward import parse_reward
from protocol.run.task import Objective, TaskKind, TaskSpec, broken_task_rules
from protocol.schema import Bound, Hex32, Malformed, Name, canonical_json, from_plain_untrusted, is_hex

FORMAT = 6
BASIS_MAGIC_BYTES = 16  # of the file of a dense core's basis


class TensorKind(StrEnum):
    """How a trainable tensor moves: a matrix by U C V^T, a vector by U c.

    A transposed one moves by V C^T U^T. It is a matrix with a dense core whose stored parameter is inputs x outputs.
    """

    MATRIX = "matrix"
    TRANSPOSED = "transposed"
    VECTOR = "vector"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One trainable tensor: its name in the checkpoint and the shape of the stored parameter (cols = 0: a vector)."""

    name: Name
    kind: TensorKind
    rows: Annotated[int, Bound(1, 1 << 24)]
    cols: Annotated[int, Bound(0, 1 << 24)]

    @property
    def outputs(self) -> int:
        """Return how many numbers the tensor's layer puts out, where it is a linear layer's weight."""
        return self.cols if self.kind is TensorKind.TRANSPOSED else self.rows

    @property
    def inputs(self) -> int:
        """Return how many numbers that layer takes in."""
        return self.rows if self.kind is TensorKind.TRANSPOSED else self.cols


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The parameters of a run. Build it with :func:`checked`, so that its rules hold.

    Attributes:
        format: version of this structure.
        name: for people.
        owner: Ed25519 public key in hex; signs the document.
        tensors: trainable tensors; their order numbers them.
        steps: length of the run.
        staleness: by how many rounds an active author may lag before the others wait for it (SPEC 9.1.1).
        admission: who may contribute.
        authors_max: bound of the author table, from which overflow bounds follow.
    """

    format: int
    name: Name
    owner: Hex32
    model: ModelSpec
    tensors: Annotated[tuple[TensorSpec, ...], Bound(1, limits.TENSORS_MAX)]
    task: TaskSpec
    method: Method
    schedule: Schedule
    steps: Annotated[int, Bound(1, limits.STEPS_MAX)]
    staleness: Annotated[int, Bound(0, 64)]
    admission: AdmissionSpec
    authors_max: Annotated[int, Bound(1, limits.AUTHORS_MAX)]

    @cached_property
    def canonical(self) -> bytes:
        """Return the bytes to hash: ASCII JSON with sorted keys, no spaces and integers only (SPEC 1.2)."""
        return canonical_json(self)

    @cached_property
    def run_id(self) -> RunId:
        """Return the 32-byte identity of the run."""
        return RunId(hashing.hash_fields("sfnode/run/1", self.canonical))

    @property
    def owner_key(self) -> Author:
        """Return the owner's public key, 32 bytes."""
        return Author(bytes.fromhex(self.owner))

    @property
    def epsilon(self) -> float:
        """Return half the width of the central finite difference, exact in binary floating point."""
        return 2.0**self.method.epsilon_exp

    @cached_property
    def numbers(self) -> int:
        """Return how many numbers an envelope holds: a scalar for each direction, or a dense core after its rows."""
        return 1 + sum(core_sizes(self)) if self.method.is_dense else self.method.scalars

    def weight(self, step: int) -> int:
        """Return the integer learning-rate weight of ``step`` (SPEC 5.3)."""
        return self.schedule.weight(step, self.steps)

    def scalars_of_nothing(self, step: int, rows: int) -> tuple[int, ...] | None:
        """Return what to send where answers taught nothing: zeros in the last step, None before (SPEC 5.7)."""
        if self.task.kind is not TaskKind.REWARD or step < self.steps - 1:
            return None
        each = parse_reward(self.task.completion).rows_each
        return (max(1, rows // each) * each, *[0] * (self.numbers - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedManifest:
    """A manifest with its owner's signature: the content of a ``.run`` file."""

    manifest: Manifest
    signature: bytes

    def encode(self) -> bytes:
        """Return the file's content: canonical bytes, newline, signature in hex, newline (SPEC 1.3)."""
        return self.manifest.canonical + b"\n" + self.signature.hex().encode("ascii") + b"\n"


def sign_manifest(manifest: Manifest, signer: Signer) -> SignedManifest:
    """Sign a manifest with the owner's key; ``signer`` must be the key that ``manifest.owner`` names."""
    assert signer.author == manifest.owner_key
    return SignedManifest(manifest=manifest, signature=signer.sign(b"sfnode/manifest/1" + manifest.run_id))


def decode_run_untrusted(data: bytes) -> SignedManifest:
    """Decode the content of a ``.run`` file or a peer's answer. Raises Reject, which names the fault."""
    # [REJECT] SPEC 1.3: size, two lines, canonical JSON, known format, every field within bounds, owner's signature.
    if len(data) > limits.MANIFEST_BYTES_MAX:
        raise Reject(RejectReason.SIZE, f"manifest of {len(data)} bytes, at most {limits.MANIFEST_BYTES_MAX}")
    lines = data.split(b"\n")
    if len(lines) != 3 or lines[2] != b"" or len(lines[1]) != 2 * SIGNATURE_BYTES:
        text = "not a run file: one line of JSON and one line of signature expected"
        raise Reject(RejectReason.MANIFEST_FORMAT, text)
    try:
        # Python's parser accepts NaN and Infinity, which JSON does not have: ``int`` refuses their names.
        document = json.loads(lines[0].decode("utf-8"), parse_constant=int)
    except (ValueError, RecursionError):
        raise Reject(RejectReason.MANIFEST_FORMAT, "the first line is not JSON") from None
    manifest = checked(document)
    if manifest.canonical != lines[0]:
        raise Reject(RejectReason.MANIFEST_FORMAT, "the JSON is not in canonical form")
    if not is_hex(lines[1].decode("latin-1"), 2 * SIGNATURE_BYTES):
        raise Reject(RejectReason.MANIFEST_FORMAT, "the signature line is not lower-case hexadecimal")
    signature = bytes.fromhex(lines[1].decode("ascii"))
    if not is_signed(manifest.owner_key, b"sfnode/manifest/1" + manifest.run_id, signature):
        raise Reject(RejectReason.MANIFEST_SIGNATURE, "the owner's signature does not fit: the document was changed")
    return SignedManifest(manifest=manifest, signature=signature)


def checked(data: object) -> Manifest:
    """Build a manifest from plain data (a JSON mapping). Raises Reject with the field's path when a rule is broken."""
    version = data.get("format") if isinstance(data, dict) else None
    if type(version) is int and version != FORMAT:
        text = f"manifest format {version}, but this sfnode reads format {FORMAT}: install a release that knows it"
        raise Reject(RejectReason.MANIFEST_FORMAT, text)
    try:
        manifest = from_plain_untrusted(Manifest, data, "manifest")
    except Malformed as error:
        raise Reject(RejectReason.MANIFEST_FIELD, str(error)) from None
    for complaint in _broken_rules(manifest):
        raise Reject(RejectReason.MANIFEST_FIELD, complaint)
    return manifest


def _broken_rules(manifest: Manifest) -> Iterator[str]:
    """Check the rules between fields (SPEC 1.4); yield a complaint for each that is broken."""
    method, task = manifest.method, manifest.task
    names = [tensor.name for tensor in manifest.tensors]
    bits = view_max(manifest)
    coefficients = coefficient_count(manifest)
    cores = len(manifest.tensors) * method.scalars
    if not is_hex(manifest.owner, 64) or not is_author_key(bytes.fromhex(manifest.owner)):
        yield "owner: not a valid key"
    yield from broken_model_rules(manifest.model)
    if len(set(names)) != len(names):
        yield "tensors: a name is listed twice"
    if any((tensor.kind is TensorKind.VECTOR) != (tensor.cols == 0) for tensor in manifest.tensors):
        yield "tensors: cols must be 0 for a vector and positive for a matrix"
    yield from broken_method_rules(method)
    yield from _broken_dense_rules(manifest)
    if manifest.steps % method.local_steps != 0:
        yield "steps: not a multiple of method.local_steps"
    if task.batch_rows * method.shares % method.directions != 0:
        yield "task.batch_rows: not a multiple of method.directions / method.shares"
    if method.is_dense and basis_bytes(manifest) > limits.BASIS_BYTES_MAX:
        yield f"method.rank: the basis's file would exceed {limits.BASIS_BYTES_MAX} bytes: lower the rank"
    yield from broken_task_rules(task)
    if manifest.admission.kind is not AdmissionKind.OPEN and manifest.admission.pow_bits != 0:
        yield "admission.pow_bits: must be 0 where the owner admits each key"
    if coefficients > limits.COEFFICIENTS_MAX:
        yield (
            f"bounds: {coefficients} coefficients in all epochs, at most {limits.COEFFICIENTS_MAX}: lower method.rank, "
            f"steps or the number of tensors, or raise method.epoch_steps"
        )
    if cores > limits.CORES_MAX:
        yield (
            f"bounds: {cores} tensors x directions x local_steps, at most {limits.CORES_MAX}: lower method.directions, "
            "method.local_steps or the number of tensors"
        )
    if method.core is CoreKind.RADEMACHER and cores * method.rank**2 > limits.CORE_PRODUCTS_MAX:
        yield (
            f"bounds: {cores * method.rank**2} tensors x directions x local_steps x rank^2, at most "
            f"{limits.CORE_PRODUCTS_MAX} with method.core rademacher: use canonical cores, or lower method.rank"
        )
    if bits >= 1 << limits.COEFFICIENT_BITS_MAX:
        yield (
            f"bounds: authors_max x epoch steps x scalars x weight x largest product takes {bits.bit_length()} bits, "
            f"at most {limits.COEFFICIENT_BITS_MAX}: lower authors_max, epoch_steps, clip or the learning-rate "
            "weights; with dense cores steps, too"
        )


def _broken_dense_rules(manifest: Manifest) -> Iterator[str]:
    """Check the rules for a dense core that concern fields outside the method (SPEC 1.4.14)."""
    method, tensors = manifest.method, manifest.tensors
    if not method.is_dense:
        if manifest.task.kind is TaskKind.REWARD:
            yield "method.core: rewards are learnt by a dense core, and this run draws directions: nobody can train it"
        if any(tensor.kind is TensorKind.TRANSPOSED for tensor in tensors):
            yield "tensors: only one with a dense core is transposed"
        return
    if any(tensor.kind is TensorKind.VECTOR for tensor in tensors):
        yield "tensors: a dense core is one of matrices, and a vector is listed"
    if len({tensor.outputs for tensor in tensors}) > 1:
        yield "tensors: with a dense core all have as many outputs, as the target is of one stream"
    if manifest.task.objective is not Objective.LOSS:
        yield "task.objective: must be loss with dense cores"
    if manifest.task.batch_rows != method.directions:
        yield "task.batch_rows: must be method.directions with dense cores, whose directions count rows"
    if manifest.numbers > limits.DENSE_NUMBERS_MAX:
        yield (
            f"bounds: {manifest.numbers} numbers in a dense message, at most {limits.DENSE_NUMBERS_MAX}: lower "
            "method.rank or method.core_rows, or list fewer tensors"
        )


def core_sizes(manifest: Manifest) -> list[int]:
    """Return how many coordinates each tensor's core has."""
    method = manifest.method
    rows = method.core_rows if method.is_dense else method.rank
    return [method.rank * (1 if tensor.kind is TensorKind.VECTOR else rows) for tensor in manifest.tensors]


def coefficient_count(manifest: Manifest) -> int:
    """Return how many coefficients the whole run has, of all tensors in all epochs; dense ones also count rows."""
    in_epoch = sum(core_sizes(manifest)) + manifest.method.is_dense
    return in_epoch * -(-manifest.steps // manifest.method.epoch_steps)


def coefficient_max(manifest: Manifest) -> int:
    """Return a bound of |C| in any epoch: every author, every step, all scalars on one coordinate (SPEC 4.5).

    A dense message counts for its rows, and its weight is not in C.
    """
    method = manifest.method
    if method.is_dense:
        return manifest.authors_max * method.directions * method.clip
    weight = max(manifest.schedule.weight_start, manifest.schedule.weight_end)
    return manifest.authors_max * min(method.epoch_steps, manifest.steps) * method.scalar_mass_max * weight


def view_max(manifest: Manifest) -> int:
    """Return a bound of any entry of U C V^T, in integers: of one epoch, or of all with a dense core (SPEC 4.7)."""
    method = manifest.method
    if not method.is_dense:
        return coefficient_max(manifest) * method.product_max
    weight = max(manifest.schedule.weight_start, manifest.schedule.weight_end)
    return manifest.steps * weight * method.clip * method.product_max


def basis_bytes(manifest: Manifest) -> int:
    """Return the length of the file of a dense core's basis (SPEC 4.6): magic, exponents, int8 entries."""
    method, tensors = manifest.method, manifest.tensors
    written = tensors[0].outputs * method.core_rows
    entries = written + sum(written + tensor.inputs * method.rank for tensor in tensors)
    return BASIS_MAGIC_BYTES + 1 + 2 * len(tensors) + entries
