"""What a model learns from whether its answers were right, beside LoRA with the same rewards and evolution strategies.

    python -m benchmarks.rewards --tasks line,yes --methods network,alone --write docs
    python -m benchmarks.rewards --quick

Each run is kept on disk as soon as it has ended, so the command can be stopped and called again. Runs that were not
asked for now, but are on disk, are in the table, too. The whole takes hours on two cores, and minutes on a graphics
card; --quick takes a minute, with the model that comes with sfnode, and learns nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

import click
from transformers import PreTrainedTokenizerBase

from benchmarks import places
from benchmarks.command_line import Benchmark, Numbers, write_option
from benchmarks.learn.problems import DEVICES, SMOLLM2, Folders, ModelChoice, load
from benchmarks.measures import report
from benchmarks.rewards.looks import Course
from benchmarks.rewards.methods import Bench, ask_alone, train_evolution, train_lora, train_network
from benchmarks.rewards.page import ALONE, table_of, write_docs
from benchmarks.rewards.runs import Run, kept_or_run
from benchmarks.rewards.tasks import ANSWERS, REWARD_TASKS, TOKENS_MAX, RewardTask
from protocol.errors import OperatorError
from sfnode import demo
from sfnode.storage import example_files
from sfnode.training.model import loading

T = TypeVar("T")

_PLAIN_FILE = "rte/dev_277.jsonl"  # its premises are news that no task asks about
_PLAIN_TEXTS = 64
_QUICK_MODEL = ModelChoice(reference=example_files.EMBEDDED + demo.MODEL_NAME, dtype="fp32")
_QUICK_TASK = "sums"  # made up, and with short answers
METHODS: dict[str, Callable[[Bench], Course]] = {
    ALONE: ask_alone,
    "network": train_network,
    "LoRA": train_lora,
    "evolution": train_evolution,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardStudy:
    """How long runs are, and where they are looked at.

    Attributes:
        rounds: of training; looks: after which, and after the last.
        clients: each with its own answers, in a round; every method gets as many answers.
        held_out: prompts to look at; plain: texts.
    """

    model: ModelChoice
    rounds: int = 16
    looks: tuple[int, ...] = (0, 2, 4, 8, 12)
    clients: int = 8
    held_out: int = 128
    plain: int = _PLAIN_TEXTS

    def run(self, folders: Folders, kept: Path, task: RewardTask, method: str, seed: int) -> Run:
        """The run, from ``kept`` where it is there."""
        settings = {
            "rounds": self.rounds,
            "looks": list(self.looks),
            "clients": self.clients,
            "held_out": self.held_out,
            "check": task.check,
            "tokens": task.tokens,
        }
        subject = {"model": self.model.title, "task": task.name, "method": method, "seed": seed, "settings": settings}
        return kept_or_run(kept, subject, lambda: METHODS[method](self._bench(folders, task, method, seed)))

    def _bench(self, folders: Folders, task: RewardTask, method: str, seed: int) -> Bench:
        """What a run gets."""
        folder = folders.model(self.model)
        tokenizer = loading.load_tokenizer(folder)
        spec = task.spec(tokenizer, min(TOKENS_MAX, loading.positions_of(folder) or TOKENS_MAX))
        return Bench(
            title=f"{task.name} {method} seed {seed}",
            model=load(folders, self.model),
            spec=spec,
            data=task.read(tokenizer, spec, folders.data, self.held_out),
            plain=[*_plain_texts(tokenizer, folders.data, self)],
            seed=seed,
            rounds=self.rounds,
            looks=frozenset((*self.looks, self.rounds)),
            answers=self.clients * ANSWERS,
            card=folders.card,
        )


QUICK = RewardStudy(model=_QUICK_MODEL, rounds=2, looks=(0,), clients=2, held_out=8, plain=8)


def _plain_texts(tokenizer: PreTrainedTokenizerBase, data: Path, study: RewardStudy) -> list[tuple[int, ...]]:
    is_quick = study.model == _QUICK_MODEL
    file, name = (demo.data_file(split="eval"), "sentence") if is_quick else (data / _PLAIN_FILE, "premise")
    rows = file.read_text("utf-8").split("\n")[: study.plain]
    return [tuple(tokenizer.encode(str(json.loads(row)[name]))) for row in rows]


def _named(option: str, names: str | None, known: dict[str, T]) -> dict[str, T]:
    chosen = [*known] if names is None else names.split(",")
    if unknown := [name for name in chosen if name not in known]:
        raise OperatorError(f"--{option} {unknown[0]!r}: known are {', '.join(known)}")
    return {name: known[name] for name in chosen}


def _check_files(data: Path, tasks: dict[str, RewardTask], *, is_quick: bool) -> None:
    wanted = [file for task in tasks.values() for file in task.files] + ([] if is_quick else [_PLAIN_FILE])
    if missing := [data / file for file in wanted if not (data / file).is_file()]:
        raise OperatorError(f"{missing[0]} is missing: give the folder of the data sets with --data")


@click.command(cls=Benchmark)
@click.option("--tasks", help="Which tasks, separated by commas; without it, all.")
@click.option("--methods", help="What is compared: alone, network, LoRA, evolution; without it, all.")
@click.option("--seeds", type=Numbers(), default="0,1,2", show_default=True)
@click.option("--rounds", type=click.IntRange(1), help="Of training; without it, 16.")
@click.option("--clients", type=click.IntRange(1), help="With 16 answers a round each; without it, 8.")
@click.option("--dtype", default=SMOLLM2.dtype, show_default=True, help="Of the weights, as `sfnode join` takes it.")
@places.data_option
@click.option("--work", type=click.Path(path_type=Path), default=Path("build/rewards"), show_default=True)
@click.option("--device", type=click.Choice(DEVICES), default="cpu", show_default=True)
@click.option("--quick", "is_quick", is_flag=True, help="A minute, to try the program; learns nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@write_option
def main(
    tasks: str | None,
    methods: str | None,
    seeds: tuple[int, ...],
    rounds: int | None,
    clients: int | None,
    dtype: str,
    data: Path,
    work: Path,
    device: str,
    is_quick: bool,
    as_json: bool,
    docs: Path | None,
) -> None:
    """Rewards for answers: this network, LoRA by back-propagation, evolution strategies, the model alone."""
    study = QUICK if is_quick else RewardStudy(model=replace(SMOLLM2, dtype=dtype))
    study = replace(study, rounds=rounds or study.rounds, clients=clients or study.clients)
    if docs and clients:
        raise click.UsageError("--write: the table in the docs is of 8 clients; leave out --clients")
    folders = Folders(data=data, models=data, device=device)
    chosen = _named("tasks", tasks or (_QUICK_TASK if is_quick else None), REWARD_TASKS)
    compared = _named("methods", methods, METHODS)
    _check_files(data, chosen, is_quick=is_quick)
    folders.check(study.model, ())
    runs = [
        study.run(folders, work, task, method, seed)
        for seed in ((0,) if is_quick else seeds)
        for task in chosen.values()
        for method in compared
    ]
    if docs:
        runs = write_docs(runs, docs)
    report([asdict(run) for run in runs], as_json=as_json, lines=table_of(runs))


if __name__ == "__main__":
    main()
