"""python -m benchmarks.one_pass: see --help."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

import click
import numpy as np
import torch

from benchmarks import places
from benchmarks.command_line import Benchmark, Numbers
from benchmarks.learn.problems import DEVICES, Folders, Task
from benchmarks.learn.recipes import real_tasks
from benchmarks.one_pass.laboratory import CALIBRATION_ROWS, late_layers, make_laboratory
from benchmarks.one_pass.membership import attack
from benchmarks.one_pass.pooled import pooled_lora
from benchmarks.one_pass.training import Rule, even_shards, private_shards, train
from protocol.errors import OperatorError

# How many rounds for how many authors, each with 16 rows a round.
_ROUNDS = {1: 128, 4: 64, 16: 16, 64: 8, 256: 4}
_MEMBERS, _MEMBER_ROWS, _SKEW, _MEMBER_ROUNDS = 16, 64, 0.9, 12


@click.command(cls=Benchmark)
@click.option("--tasks", default="sst2", show_default=True, help="Learn these, separated by commas.")
@click.option(
    "--authors", type=Numbers(), default="16", show_default=True, help="With these numbers of authors, or with none."
)
@click.option("--rounds", type=int, help="Let each run last for this many rounds; without it, 4 to 128 by authors.")
@click.option("--seeds", type=Numbers(), default="0", show_default=True, help="Repeat with these, separated by commas.")
@click.option(
    "--members",
    is_flag=True,
    help="Compare 16 members with private, skewed rows: alone, the run, pooled, and LoRA with back-propagation on all.",
)
@click.option("--attack", "is_attacked", is_flag=True, help="Find the rows behind messages of 1 and 16 rows.")
@click.option("--noise", default=0.0, show_default=True, help="Let each author add noise of this multiplier.")
@click.option(
    "--judged",
    is_flag=True,
    help="Show nobody a label: authors draw one for each row as the model thinks, and learn whether it is right.",
)
@click.option("--pool", default=5_000, show_default=True, help="Draw from this many training rows.")
@places.data_option
@click.option("--device", type=click.Choice(DEVICES), default="cpu", show_default=True, help="Compute on this.")
def main(
    tasks: str,
    authors: tuple[int, ...],
    rounds: int | None,
    seeds: tuple[int, ...],
    members: bool,
    is_attacked: bool,
    noise: float,
    judged: bool,
    pool: int,
    data: Path,
    device: str,
) -> None:
    """Train SmolLM2-135M's last ten layers from one forward pass a row, in a laboratory without a network.

    Example: python -m benchmarks.one_pass --tasks sst2,trec --authors 1,16
    """
    folders = Folders(data=data, models=places.MODELS, device=device)
    if rounds is None and (unknown := {*authors} - {*_ROUNDS}):
        known = ", ".join(map(str, _ROUNDS))
        raise OperatorError(f"--authors {min(unknown)}: give --rounds, too; without it they can be {known}")
    chosen = real_tasks(tasks, folders)
    counts = {each: rounds or _ROUNDS[each] for each in authors}
    for task in chosen:
        for seed in seeds:
            case = NoisyCase(
                seed=seed, noise=noise, members=members, attacked=is_attacked, pool_rows=pool, judged=judged
            )
            about = {"task": task.name, "seed": seed, "noise": noise, "judged": judged, "card": folders.card}
            click.echo(json.dumps(about | _measured(folders, task, counts, case)))


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyCase:
    """What is measured of one task with one seed, beside the numbers of authors."""

    seed: int
    noise: float
    members: bool
    attacked: bool
    pool_rows: int
    judged: bool


def _measured(folders: Folders, task: Task, rounds_by_authors: Mapping[int, int], case: NoisyCase) -> dict[str, object]:
    seed, chance = case.seed, np.random.default_rng(1_000 + case.seed)
    drawn = late_layers(folders, task, chance, rows=case.pool_rows + CALIBRATION_ROWS, dtype=torch.float32)
    lab = make_laboratory(*drawn, range(len(drawn[0].labels)), seed)
    layers, test, basis, pool = lab.layers, lab.test, lab.basis, lab.pool
    scale = replace(lab.scale, noise=case.noise)
    found: dict[str, object] = {"numbers": basis.zero()[0].numel(), "curvature": basis.curvature}
    for count, rounds in rounds_by_authors.items():
        shards = even_shards(pool, count)
        rule, between = Rule(is_judged=case.judged), (rounds // 4, rounds // 2)
        looks = train(layers, test, basis, scale, shards, rounds=rounds, seed=seed, rule=rule, looks=between)
        found[f"authors_{count}"] = [asdict(look) for look in looks]
    if case.attacked:
        candidates = torch.from_numpy(pool)
        found["attack"] = [asdict(attack(layers, basis, scale, candidates, chance, rows)) for rows in (1, 16)]
    if case.members:
        labels = layers.labels.cpu().numpy()
        shards = private_shards(labels, pool, chance, members=_MEMBERS, rows=_MEMBER_ROWS, skew=_SKEW)
        rows = np.concatenate(shards)
        run = partial(train, layers, test, basis, scale, rounds=_MEMBER_ROUNDS, seed=seed)
        alone = run(shards, alone=True)[-1].accuracy
        found["members"] = {"alone_median": median(alone), "alone_best": max(alone)}
        found["run"] = asdict(run(shards)[-1])
        found["pooled"] = asdict(run(even_shards(rows, _MEMBERS))[-1])
        found["pooled_lora"] = pooled_lora(folders, task, [layers.examples[row] for row in rows], seed)
    return found


if __name__ == "__main__":
    main()
