"""Runs to measure: manifests with the defaults of `sfnode init --plain`, authors, and signed records. No clock here."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from protocol.crypto import Author, Signer, hashing
from protocol.errors import Ignore
from protocol.ledger import Envelope, EnvelopeCodec, Ledger
from protocol.run import (
    FORMAT,
    OPEN_TO_ALL,
    Manifest,
    Objective,
    ScheduleKind,
    TaskKind,
    TaskSpec,
    TensorKind,
    TensorSpec,
    no_model,
)
from protocol.state import Replica
from sfnode.run import MethodOptions, manifest_builder
from sfnode.storage import DenseSettings

OWNER = Signer(b"benchmark owner".ljust(32, b"."))
_WIDTH, _LAYERS, _INNER, _WORDS, _POSITIONS = 768, 12, 3_072, 50_272, 2_050  # OPT-125m
_RECORDS_PER_PIECE = 10_000
_DENSE_RANK, _DENSE_ROWS, _DENSE_LEARNING_RATE = 64, 16, 0.1
_SCALAR_SPREAD = 128  # scalars as an honest author's: 4 / 2^-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """So many authors with one update in each of so many steps."""

    authors: int
    steps: int

    @property
    def updates(self) -> int:
        """Updates in all."""
        return self.authors * self.steps

    def __str__(self) -> str:
        return f"{self.authors:,} authors x {self.steps:,} steps"


def opt_125m_tensors() -> tuple[TensorSpec, ...]:
    """The 196 trainable tensors of facebook/opt-125m (names shortened: only their shapes matter here)."""
    tensors = [_matrix("words", _WORDS, _WIDTH), _matrix("positions", _POSITIONS, _WIDTH)]
    for layer in range(_LAYERS):
        tensors += [_matrix(f"{layer}.{name}", _WIDTH, _WIDTH) for name in "kvqo"]
        tensors += [_matrix(f"{layer}.fc1", _INNER, _WIDTH), _matrix(f"{layer}.fc2", _WIDTH, _INNER)]
        tensors += [_vector(f"{layer}.{name}", _WIDTH) for name in "k_bias v_bias q_bias o_bias fc2_bias".split()]
        tensors += [_vector(f"{layer}.{name}", _WIDTH) for name in "norm1 norm1_bias norm2 norm2_bias".split()]
        tensors.append(_vector(f"{layer}.fc1_bias", _INNER))
    return (*tensors, _vector("norm", _WIDTH), _vector("norm_bias", _WIDTH))


def tiny_tensors() -> tuple[TensorSpec, ...]:
    """Two tensors, for what does not depend on the model."""
    return (_matrix("a", 64, 64), _vector("b", 64))


def manifest_of(shape: Shape, tensors: Sequence[TensorSpec] | None = None) -> Manifest:
    """A run with the defaults of `sfnode init --plain` (rank 32, D = 8, canonical cores) and room for the shape.

    With more than 1,024 authors the clip is lower, so that the coefficients' bound holds (SPEC 1.4.11).
    """
    method, schedule = manifest_builder.method_of(MethodOptions())
    authors_max = 1_024
    while authors_max < shape.authors:
        authors_max, method = 2 * authors_max, replace(method, clip=method.clip // 2)
    manifest = Manifest(
        format=FORMAT,
        name="benchmark",
        owner=OWNER.author.hex(),
        model=no_model(),
        tensors=tuple(tensors or opt_125m_tensors()),
        task=TaskSpec(
            kind=TaskKind.CLASSIFICATION,
            completion="",
            objective=Objective.LOSS,
            template="{sentence} It was",
            label_words=(" bad", " good"),
            data="private",
            data_sha256="",
            max_tokens=256,
            batch_rows=16,
        ),
        method=method,
        schedule=schedule,
        steps=shape.steps,
        authors_max=authors_max,
        staleness=manifest_builder.STALENESS,
        admission=OPEN_TO_ALL,
    )
    return manifest_builder.build_manifest(manifest)


def dense_manifest_of(shape: Shape, labels: int) -> Manifest:
    """A run with a dense core as `sfnode init` makes it for SmolLM2-135M and ``labels`` label words."""
    dense = DenseSettings(
        core_rows=labels - 1, rank=_DENSE_RANK, quantum_exp=-6, energy_max=2**21, clip=7, noise_rows=_DENSE_ROWS
    )
    method, schedule = manifest_builder.dense_method_of(
        ScheduleKind.LINEAR, _DENSE_LEARNING_RATE, "0" * 64, dense, _DENSE_ROWS
    )
    drawn = manifest_of(shape, [_matrix(f"{number}", 576, 576 if number % 2 else 1_536) for number in range(20)])
    task = replace(drawn.task, label_words=tuple(f" {number}" for number in range(labels)))
    return manifest_builder.build_manifest(replace(drawn, task=task, method=method, schedule=schedule))


def weights_of(tensors: Sequence[TensorSpec]) -> int:
    """Return the number of weights."""
    return sum(tensor.rows * max(1, tensor.cols) for tensor in tensors)


def seed_of_author(number: int) -> bytes:
    """Secret seed of author number ``number``."""
    return sha256(b"author %d" % number).digest()


@lru_cache(maxsize=65_536)
def signer(number: int) -> Signer:
    """Author number ``number``."""
    return Signer(seed_of_author(number))


def scalars_of(manifest: Manifest, source: random.Random) -> tuple[int, ...]:
    """Scalars as an honest author's could be."""
    clip = manifest.method.clip
    if manifest.method.is_dense:
        return (_DENSE_ROWS, *source.choices(range(-clip, clip + 1), k=manifest.numbers - 1))
    drawn = (round(source.gauss(0, _SCALAR_SPREAD)) for _ in range(manifest.method.scalars))
    return tuple(max(-clip, min(clip, value)) for value in drawn)


def some_scalars(manifest: Manifest, index: int) -> tuple[int, ...]:
    """Return the scalars of update number ``index``: all that there are, one after the other."""
    clip = manifest.method.clip
    return tuple((index + direction) % (2 * clip + 1) - clip for direction in range(manifest.method.scalars))


def verified_envelopes(manifest: Manifest, count: int) -> list[Envelope]:
    """Return ``count`` updates of successive steps in the form after verification; they have no valid signatures."""
    record = bytes(EnvelopeCodec(manifest).record_bytes)
    return [
        Envelope(
            author=OWNER.author,
            step=index % manifest.method.epoch_steps,
            seed=hashing.seed_of(manifest.run_id, OWNER.author, index),
            scalars=some_scalars(manifest, index),
            record=record,
        )
        for index in range(count)
    ]


def sealed_records(manifest: Manifest, shape: Shape, *, seed: int = 0) -> Iterator[bytes]:
    """Signed records, step by step as a run makes them, the authors of a step in another order each time."""
    codec, source = EnvelopeCodec(manifest), random.Random(seed)
    authors = list(range(shape.authors))
    for step in range(shape.steps):
        source.shuffle(authors)
        for author in authors:
            yield codec.seal(signer(author), step, scalars_of(manifest, source)).record


def kept_records(manifest: Manifest, shape: Shape, kept: Path) -> Iterator[list[bytes]]:
    """The signed records in lists of up to 10,000, from the file, which is made when it holds others."""
    record_bytes = EnvelopeCodec(manifest).record_bytes
    run_id = b""
    if kept.exists() and kept.stat().st_size == len(manifest.run_id) + shape.updates * record_bytes:
        with kept.open("rb") as source:
            run_id = source.read(len(manifest.run_id))
    if run_id != manifest.run_id:
        with kept.open("wb") as out:
            out.write(manifest.run_id)
            out.writelines(sealed_records(manifest, shape))
    with kept.open("rb") as source:
        source.seek(len(manifest.run_id))
        while piece := source.read(_RECORDS_PER_PIECE * record_bytes):
            yield [piece[start : start + record_bytes] for start in range(0, len(piece), record_bytes)]


class TrustingCodec(EnvelopeCodec):
    """A codec that trusts signature and seed: to fill ledgers where the filling is not what is measured."""

    def check_signed(self, envelope: Envelope) -> None:
        """Anything passes."""


def unsigned_records(manifest: Manifest, shape: Shape) -> Iterator[bytes]:
    """Records as :func:`sealed_records`, but with zeros for signatures: 5 us each."""
    codec, source = EnvelopeCodec(manifest), random.Random(0)
    silent = [_Unsigned(signer(number).author) for number in range(shape.authors)]
    scalars = [scalars_of(manifest, source) for _ in range(997)]
    for step in range(shape.steps):
        for number, author in enumerate(silent):
            yield codec.seal(author, step, scalars[(step * 31 + number) % 997]).record


def trusted_ledger(manifest: Manifest, records: Iterable[bytes]) -> Ledger:
    """A ledger that was filled without looking at signatures and checks those of all that comes later."""
    ledger = Ledger(manifest)
    codec, ledger.codec = ledger.codec, TrustingCodec(manifest)
    for record in records:
        take(ledger, record)
    ledger.codec = codec
    return ledger


def trusted_replica(manifest: Manifest, records: Iterable[bytes]) -> Replica:
    """A replica whose ledger was filled like :func:`trusted_ledger`, all of it summed."""
    replica = Replica(manifest)
    codec, replica.ledger.codec = replica.ledger.codec, TrustingCodec(manifest)
    for record in records:
        replica.add(record)
    replica.ledger.codec = codec
    replica.coefficients()
    return replica


def take(ledger: Ledger, record: bytes) -> None:
    """Add a record that may be held already."""
    try:
        ledger.add(record)
    except Ignore:
        return


class _Unsigned(Signer):
    """An author whose signatures are zeros."""

    def __init__(self, author: Author) -> None:
        self.author = author

    def sign(self, message: bytes) -> bytes:
        return bytes(64)


def _matrix(name: str, rows: int, cols: int) -> TensorSpec:
    return TensorSpec(name=name, kind=TensorKind.MATRIX, rows=rows, cols=cols)


def _vector(name: str, rows: int) -> TensorSpec:
    return TensorSpec(name=name, kind=TensorKind.VECTOR, rows=rows, cols=0)
