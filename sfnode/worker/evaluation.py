"""Accuracy of model states on held-out data, measured by a worker, for ``sfnode eval`` and the test network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from protocol.run import SignedManifest
from protocol.state import Coefficients
from sfnode.worker.client import coefficients_of, connect
from sfnode.worker.supervisor import worker_socket
from sfnode.worker_protocol import (
    CoefficientsSet,
    Evaluated,
    EvaluateRequest,
    OpenSession,
    SessionOpened,
    TrainingConfig,
)


async def evaluate_states(
    signed: SignedManifest, config: TrainingConfig, states: Sequence[Coefficients | None]
) -> list[Evaluated]:
    """Evaluate each state on ``config.eval_data``; for None the model alone, without the run's start.

    Raises OperatorError, WorkerError.
    """
    async with worker_socket(config) as socket:
        return await _evaluate_on(socket, signed, config, states)


async def _evaluate_on(
    socket: Path, signed: SignedManifest, config: TrainingConfig, states: Sequence[Coefficients | None]
) -> list[Evaluated]:
    results: list[Evaluated] = []
    for state in states:
        session = await connect(socket)
        await session.request(OpenSession(manifest=signed.encode(), training=replace(config, data=None)), SessionOpened)
        if state is not None:
            await session.request(coefficients_of(state, state.epochs()), CoefficientsSet)
        results.append(await session.request(EvaluateRequest(rows_max=0, is_alone=state is None), Evaluated))
        await session.aclose()
    return results
