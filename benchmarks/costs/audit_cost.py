"""Measure what an audit of a message costs, and how far honest machines differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final

import torch

from benchmarks.sample_runs import OWNER
from protocol.crypto import hashing
from protocol.documents import audit_report
from protocol.subspace import Bases
from sfnode.training.bench import synthetic_models, timing
from sfnode.training.devices import choose_device
from sfnode.training.estimator import Estimator
from sfnode.training.model import loading, trainable_tensors
from sfnode.training.shared_model import SharedModel

REPEATS: Final = 5
MESSAGES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCost:
    """Result of `bench_audit`.

    Attributes:
        seconds: of an audit of one message (two estimates and the two states).
        ratio_to_step: of an audit to one estimate.
        spread: of both, relative.
        deviation_of_dtypes: median `deviation` of the scalars in ``other_dtype`` from those in ``dtype``.
        share_clipped: share of clipped scalars, which show no rounding.
        deviation_of_strangers: of the scalars of another seed, which are like invented ones. An audit separates honest
            from invented scalars where deviation_of_dtypes is well below this.
    """

    shape: str
    rows: int
    tokens: int
    dtype: str
    other_dtype: str
    device: str
    threads: int
    seconds: float
    ratio_to_step: float
    spread: Mapping[str, float]
    deviation_of_dtypes: float
    share_clipped: float
    deviation_of_strangers: float


def bench_audit(shape: str, *, rows: int, tokens: int, dtype: str, other_dtype: str, device: str = "auto") -> AuditCost:
    """Measure one message on two neighbouring states, and the same messages in two dtypes."""
    where = choose_device(device)
    sessions = [_session(shape, rows, tokens, name, where) for name in (dtype, other_dtype)]
    first, other = sessions
    manifest = first.manifest
    states = [synthetic_models.some_coefficients(manifest, epoch) for epoch in (0, 1)]

    def audit() -> None:
        for state in states:
            first.set_coefficients(0, state)
            first.estimate(1, 0)

    times = timing.timed_in_turn({"audit": audit, "step": lambda: first.estimate(1, 0)}, where, REPEATS)
    seeds = [hashing.seed_of(manifest.run_id, OWNER.author, step) for step in range(MESSAGES + 1)]
    for session in sessions:
        session.set_coefficients(0, states[0])
    here = [first.estimate(seed, 0).scalars for seed in seeds]
    there = [other.estimate(seed, 0).scalars for seed in seeds]
    return AuditCost(
        shape=shape,
        rows=rows,
        tokens=tokens,
        dtype=dtype,
        other_dtype=other_dtype,
        device=where.type,
        threads=torch.get_num_threads(),
        seconds=median(times["audit"]),
        ratio_to_step=median(times["audit"]) / median(times["step"]),
        spread={name: timing.relative_spread(found) for name, found in times.items()},
        deviation_of_dtypes=median(map(audit_report.deviation, there, here)),
        share_clipped=sum(abs(each) == manifest.method.clip for q in here for each in q) / sum(map(len, here)),
        deviation_of_strangers=median(map(audit_report.deviation, here[1:], here[:-1])),
    )


def _session(shape: str, rows: int, tokens: int, dtype: str, where: torch.device) -> Estimator:
    model = synthetic_models.random_model(shape, where, loading.compute_dtype(dtype))
    manifest = synthetic_models.bench_manifest(trainable_tensors(model), rows=rows, tokens=tokens)
    return Estimator(SharedModel(model), Bases(manifest), synthetic_models.random_data(rows, tokens))
