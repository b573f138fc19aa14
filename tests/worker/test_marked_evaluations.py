"""What a node measures on held-out data is marked with the exclusions that the model knew, and with no later ones."""

from __future__ import annotations

from pathlib import Path

from sfnode.worker.trainer import Evaluate
from sfnode.worker_protocol.messages import EvaluateRequest, Message, Reply
from tests.support.fake_worker import healthy
from tests.worker.test_trainer import running


async def test_trainer__author_is_excluded_during_an_evaluation__the_result_is_of_the_model_before(
    tmp_path: Path,
) -> None:
    def excluding(request: Message) -> Reply | bytes:
        if isinstance(request, EvaluateRequest):
            bench.coefficients.removals = [(2, "first"), (4, "second")]
        return healthy(request)

    async with running(tmp_path, excluding) as bench:
        await bench.next()
        for step in (4, 4, 5):
            bench.jobs.send_nowait(Evaluate(step=step))
        await bench.outcome(5)
        found = [(each.step, each.removed) for each in bench.trainer.evaluations]
        assert found == [(4, ""), (4, "first"), (5, "second")], "of an author who leaves from step 4 on, none is before"
        assert all("removed" not in told for told in bench.told("evaluated"))
