"""Write a task's prompts and rule into files, for `sfnode init --reward` and `sfnode testnet`.

python -m benchmarks.rewards.prompts line build/demo-rewards
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from benchmarks import places
from benchmarks.command_line import Benchmark
from benchmarks.rewards.tasks import REWARD_TASKS, SAMPLES


@click.command(cls=Benchmark)
@click.argument("task", type=click.Choice([*REWARD_TASKS]))
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@places.data_option
@click.option("--held-out", "held_out", type=click.IntRange(1), default=64, show_default=True, help="Prompts.")
def write_prompts(task: str, folder: Path, data: Path, held_out: int) -> None:
    """Write train.jsonl, test.jsonl and rule.json of a TASK into FOLDER."""
    chosen = REWARD_TASKS[task]
    if missing := [data / file for file in chosen.files if not (data / file).is_file()]:
        raise click.ClickException(f"{missing[0]} is missing: give the folder of the data sets with --data")
    train, test = chosen.rows(data)
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("train.jsonl", train), ("test.jsonl", test[:held_out])):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    rule = {"check": chosen.check, "samples": SAMPLES, "tokens": chosen.tokens}
    (folder / "rule.json").write_text(json.dumps(rule, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    write_prompts()
