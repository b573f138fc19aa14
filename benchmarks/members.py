"""A run of members with few private rows each, beside each member alone and the same rows in one place.

    python -m benchmarks.members --tasks sst2,trec --seeds 0,1,2

The product's own code but for the wire: the basis and the rate of `sfnode init`, signed messages, the sum of integers.
The basis comes from rows that no member has. Nine of ten rows of a member have one label.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

import click
import numpy as np

from benchmarks import places
from benchmarks.command_line import Benchmark, Numbers
from benchmarks.learn.plain import Measured
from benchmarks.learn.problems import DEVICES, SMOLLM2, Folders, Task, load, read
from benchmarks.learn.recipes import DENSE_CORE, REAL_RECIPES, real_tasks
from benchmarks.learn.spaces import Space, space_of
from benchmarks.learn.trials import NetworkTrial
from benchmarks.measures import say
from benchmarks.one_pass.pooled import pooled_lora
from benchmarks.one_pass.training import private_shards
from benchmarks.sample_runs import signer
from protocol.crypto import hashing
from protocol.ledger import EnvelopeCodec
from protocol.state import Coefficients
from sfnode.training.estimator import Estimator
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import TaskData

_SKEW = 0.9  # of a member's rows have one label


@dataclass(frozen=True, slots=True, kw_only=True)
class BesideMembers:
    """What the test rows say. ``start``: of the model alone; ``pooled``: where each member draws from all rows."""

    start: Measured
    alone: list[Measured]
    run: Measured
    pooled: Measured


def compare(
    task: Task, data: TaskData, shared: SharedModel, *, members: int, rows: int, recipe: NetworkTrial, seed: int
) -> tuple[BesideMembers, list[int]]:
    """Play the run, each member alone, and the pooled run; return the members' rows, too, as places in the data."""
    labels, chance = np.array([example.label for example in data.examples]), np.random.default_rng(seed)
    shards = private_shards(labels, np.arange(len(labels)), chance, members=members, rows=rows, skew=_SKEW)
    given = np.concatenate(shards).tolist()
    left = sorted({*range(len(labels))} - {*given})
    space = space_of(recipe, task, _only(data, left), shared, rate=None, seed=seed)
    say(f"  basis and rate found in {space.rows:,} rows")
    nobody, pool = _only(data, []), _only(data, given)
    start = Estimator(shared, space.bases, nobody).evaluate(task.test_rows)
    parts = [_only(data, shard.tolist()) for shard in shards]
    alone = []
    for member, part in enumerate(parts):
        alone.append(_played(space, shared, {member: part}, recipe.steps, task.test_rows))
        say(f"  member {member} alone: {100 * alone[-1].accuracy:.1f} %")
    run = _played(space, shared, dict(enumerate(parts)), recipe.steps, task.test_rows)
    say(f"  the run: {100 * run.accuracy:.1f} % ({run.loss:.3f})")
    pooled = _played(space, shared, dict.fromkeys(range(members), pool), recipe.steps, task.test_rows)
    say(f"  pooled: {100 * pooled.accuracy:.1f} % ({pooled.loss:.3f})")
    found = Measured(accuracy=start.accuracy, loss=start.loss)
    return BesideMembers(start=found, alone=alone, run=run, pooled=pooled), given


def _only(data: TaskData, places_in_data: Sequence[int]) -> TaskData:
    return replace(data, examples=tuple(data.examples[place] for place in places_in_data))


def _played(space: Space, shared: SharedModel, parts: dict[int, TaskData], steps: int, test_rows: int) -> Measured:
    """Let authors with these rows, by number, keep in step to the end of the run; return what the test rows say."""
    manifest, codec = space.bases.manifest, EnvelopeCodec(space.bases.manifest)
    coefficients = Coefficients(manifest)
    keys = {number: signer(number) for number in parts}
    authors = {
        keys[number]: Estimator(shared, space.bases, part, author=keys[number].author) for number, part in parts.items()
    }
    for step in range(steps):
        messages = []
        for key, estimator in authors.items():
            estimator.show(coefficients)
            seed = hashing.seed_of(manifest.run_id, key.author, step)
            messages.append(codec.seal(key, step, estimator.estimate(seed, step).scalars))
        coefficients.add(messages)
    last = next(iter(authors.values()))
    last.show(coefficients)
    found = last.evaluate(test_rows)
    return Measured(accuracy=found.accuracy, loss=found.loss)


@click.command(cls=Benchmark)
@click.option("--tasks", default="sst2", show_default=True, help="Learn these, separated by commas.")
@click.option("--seeds", type=Numbers(), default="0", show_default=True, help="Repeat with these, separated by commas.")
@click.option("--members", default=16, show_default=True, help="Let so many members take part.")
@click.option("--rows", default=64, show_default=True, help="Give each member so many rows.")
@click.option("--steps", default=12, show_default=True, help="Let the run last for so many steps of 16 rows a member.")
@click.option("--lora", is_flag=True, help="Fine-tune LoRA with back-propagation on the pooled rows, too.")
@places.data_option
@click.option("--device", type=click.Choice(DEVICES), default="cpu", show_default=True, help="Compute on this.")
def main(
    tasks: str, seeds: tuple[int, ...], members: int, rows: int, steps: int, lora: bool, data: Path, device: str
) -> None:
    """Compare a run of SmolLM2-135M with its members alone, and with their rows in one place.

    Example: python -m benchmarks.members --tasks sst2,trec --seeds 0,1,2
    """
    folders = Folders(data=data, models=places.MODELS, device=device)
    chosen = real_tasks(tasks, folders)
    recipe = REAL_RECIPES[DENSE_CORE]
    assert isinstance(recipe, NetworkTrial)
    recipe = replace(recipe, clients=members, steps=steps)
    for task in chosen:
        examples = read(folders, SMOLLM2, task, is_test=True)
        for seed in seeds:
            started_s, shared = time.process_time(), SharedModel(load(folders, SMOLLM2))
            found, given = compare(task, examples, shared, members=members, rows=rows, recipe=recipe, seed=seed)
            figures = asdict(found) | {
                "task": task.name,
                "seed": seed,
                "alone_median": median(each.accuracy for each in found.alone),
                "alone_best": max(each.accuracy for each in found.alone),
                "cpu_s": round(time.process_time() - started_s),  # of all threads
            }
            if lora:
                figures["lora"] = pooled_lora(folders, task, [examples.examples[place] for place in given], seed)
            click.echo(json.dumps(figures))


if __name__ == "__main__":
    main()
