"""Where the time of a node's step goes: passes, perturbation, quantising and signing, the others' updates.

The paper's table 4, on a model with its weights. CPU seconds of one thread; no disk, no network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Final

import torch
from transformers import PreTrainedModel

from benchmarks.paper.apply_time import cpu_seconds
from benchmarks.sample_runs import signer
from protocol.ledger import EnvelopeCodec
from protocol.run import Manifest
from protocol.state import Coefficients, Replica
from protocol.subspace import Bases
from sfnode.training.bench import BenchBasis, synthetic_models
from sfnode.training.estimator import Estimator
from sfnode.training.model import trainable_tensors
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import TaskData, row_batch

CLIENTS: Final = 16
ROWS: Final = 16  # on each side; with a dense core there is one
TOKENS: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSplit:
    """CPU seconds of one step of one of `CLIENTS` nodes.

    Attributes:
        passes: the bare model over the rows of all sides.
        estimate: what the step takes beyond them: low-rank terms made and added, examples drawn, the head, the loss,
            the numbers of the message. Less than nothing where the step leaves out what no label word reads.
        signing: the record encoded and signed.
        receiving: the others' updates decoded, verified, put into the ledger.
        summing: all updates of a round summed and handed to the estimator.
    """

    model: str
    method: str
    passes: float
    estimate: float
    signing: float
    receiving: float
    summing: float

    @property
    def parts(self) -> dict[str, float]:
        """Seconds by name."""
        return {name: value for name, value in asdict(self).items() if isinstance(value, float)}

    @property
    def total(self) -> float:
        """Seconds of the whole step."""
        return sum(self.parts.values())


def bases_by_method(model: PreTrainedModel, rows: int = ROWS, tokens: int = TOKENS) -> dict[str, Bases]:
    """The paper's method, and the one of `init`."""
    trained = trainable_tensors(model)
    paper = synthetic_models.bench_manifest(trained, rows=rows, tokens=tokens, directions=1)
    return {
        "rank 32, one canonical direction": Bases(paper),
        "dense core": synthetic_models.bench_bases(trained, BenchBasis.DENSE, size=(rows, tokens)),
    }


def split_of(model: PreTrainedModel, title: str, method: str, bases: Bases, *, repeats: int = 5) -> StepSplit:
    """Measured on random prompts; ``model`` stays as it is."""
    manifest = bases.manifest
    data = _data(manifest, int(model.config.vocab_size))
    rows, sides = row_batch(data.examples, 0, model.device), manifest.method.sides
    passes = synthetic_models.forward(synthetic_models.shared_copy(model), rows, sides=sides)
    session = Estimator(SharedModel(synthetic_models.shared_copy(model)), bases, data)
    message = session.estimate(1, 1).scalars
    records = _records(manifest, message)
    codec = EnvelopeCodec(manifest)
    updates = [codec.decode_untrusted(record) for record in records]

    def summing() -> None:
        fresh = Coefficients(manifest)
        fresh.add(updates)
        session.set_coefficients(0, fresh.core(0))

    summing()
    actions: dict[str, Callable[[], object]] = {
        "passes": passes,
        "estimate": lambda: session.estimate(1, 1),
        "signing": lambda: codec.seal(signer(0), 1, message),
        "receiving": lambda: _filled(manifest, records[1:]),
        "summing": summing,
    }
    with torch.inference_mode():
        found = cpu_seconds(actions, repeats)
    return StepSplit(
        model=title,
        method=method,
        passes=found["passes"],
        estimate=found["estimate"] - found["passes"],
        signing=found["signing"],
        receiving=found["receiving"],
        summing=found["summing"],
    )


def _data(manifest: Manifest, vocabulary: int) -> TaskData:
    data = synthetic_models.random_data(manifest.task.batch_rows, manifest.task.max_tokens)
    examples = (replace(each, tokens=tuple(token % vocabulary for token in each.tokens)) for each in data.examples)
    return replace(data, examples=tuple(examples))


def _records(manifest: Manifest, message: tuple[int, ...]) -> list[bytes]:
    """One step's updates of all clients, which say the same."""
    codec = EnvelopeCodec(manifest)
    return [codec.seal(signer(client), 0, message).record for client in range(CLIENTS)]


def _filled(manifest: Manifest, records: list[bytes]) -> Replica:
    replica = Replica(manifest)
    for record in records:
        replica.add(record)
    return replica
