"""Trains the embedded demo in this process, without a network: authors take turns on one model."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import torch

from protocol.crypto.hashing import seed_of
from protocol.crypto.keys import Signer
from protocol.ledger.envelope import EnvelopeCodec
from protocol.run.admission import OPEN_TO_ALL
from protocol.run.manifest import FORMAT, Manifest
from protocol.run.task import Objective, TaskKind, TaskSpec
from protocol.state.coefficients import Coefficients
from protocol.subspace.basis_file import Bases
from sfnode.demo import LABEL_WORDS, TEMPLATE, data_file, model_folder
from sfnode.model_files.resolve import resolve_model
from sfnode.run.manifest_builder import AUTHORS_MAX, STALENESS, MethodOptions, build_manifest, method_of
from sfnode.training.estimator import Estimator
from sfnode.training.model.loading import load_causal_lm, load_tokenizer
from sfnode.training.model.tensor_groups import trainable_tensors
from sfnode.training.model.weights_digest import load_described
from sfnode.training.shared_model import SharedModel
from sfnode.training.task.encoding import read_task

AUTHORS = tuple(Signer(bytes([number]) * 32) for number in range(1, 5))


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoRun:
    """A run on the embedded model and data, its state so far, and a session that estimates and evaluates."""

    manifest: Manifest
    coefficients: Coefficients
    session: Estimator

    def train(self, first_step: int, last_step: int) -> list[float]:
        """Run steps first_step ... last_step - 1 of all authors, each on the state before it; their mean losses."""
        codec, losses = EnvelopeCodec(self.manifest), []
        for step in range(first_step, last_step):
            seeds = [seed_of(self.manifest.run_id, author.author, step) for author in AUTHORS]
            estimates = [self.session.estimate(seed, step) for seed in seeds]
            self.coefficients.add(
                codec.seal(author, step, estimate.scalars) for author, estimate in zip(AUTHORS, estimates, strict=True)
            )
            self._refresh()
            losses.append(sum(estimate.loss for estimate in estimates) / len(estimates))
        return losses

    def _refresh(self) -> None:
        for epoch in self.coefficients.epochs():
            self.session.set_coefficients(epoch, self.coefficients.flat(epoch))


def demo_run(options: MethodOptions, steps: int, *, data: Path | None = None) -> DemoRun:
    """A run of so many steps that has not begun. 16 rows a step and author, of ``data``; None: all of the demo."""
    folder = resolve_model("embedded:tiny-opt")
    model = load_causal_lm(model_folder(), torch.device("cpu"), torch.float32)
    data, held_out = data or data_file(split="train"), data_file(split="eval")
    task = TaskSpec(
        kind=TaskKind.CLASSIFICATION,
        completion="",
        objective=Objective.LOSS,
        template=TEMPLATE,
        label_words=LABEL_WORDS,
        data="embedded:reviews",
        data_sha256=sha256(data.read_bytes()).hexdigest(),
        max_tokens=64,
        batch_rows=16,
    )
    method, schedule = method_of(options)
    manifest = Manifest(
        format=FORMAT,
        name="demo",
        owner=AUTHORS[0].author.hex(),
        model=load_described(folder)[1],
        tensors=trainable_tensors(model),
        task=task,
        method=method,
        schedule=schedule,
        steps=steps,
        staleness=STALENESS,
        admission=OPEN_TO_ALL,
        authors_max=AUTHORS_MAX,
    )
    manifest = build_manifest(manifest)
    session = Estimator(
        SharedModel(model), Bases(manifest), read_task(load_tokenizer(folder.path), task, data, held_out)
    )
    return DemoRun(manifest=manifest, coefficients=Coefficients(manifest), session=session)
