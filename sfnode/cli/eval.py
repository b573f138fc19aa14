"""``sfnode eval``: measure the trained model from a data directory; no node needs to run."""

import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial

import click
import trio

from protocol.errors import OperatorError
from protocol.state import Coefficients
from sfnode.api.runs import open_run
from sfnode.cli import options
from sfnode.cli.remembered_options import model_of, read_settings
from sfnode.extras import check_can_train
from sfnode.quality_figures import Quality
from sfnode.reporter import counted, counting, printable
from sfnode.storage import AtStep, DataDirectory, EvaluatedStep, Gain, disk, evaluations, example_files
from sfnode.worker import evaluate_alone, evaluate_states, evaluated_step
from sfnode.worker_protocol import DeviceOptions, Evaluated, TrainingConfig

_NAMES = {"before": evaluations.ALONE, "after": evaluations.NOW, "own": evaluations.OWN_ALONE}
_ANSWERS_SHOWN = 3
_ALONE = bytes(32)  # seed of a key that signs nothing for others: the same examples train the same model


@click.command("eval")
@options.node_option
@options.local_model_option
@click.option(
    "--eval-data",
    help="Measure on this file of held-out rows.  [default: what the node remembers, or the data that come "
    "with an embedded task]",
)
@options.at_step_option
@click.option("--compare", is_flag=True, help="Measure the model alone, too, and what your own examples alone teach.")
@click.option(
    "--data",
    help="Train on these examples alone, too, by the run's rule, and measure that; for --compare.  [default: what the "
    "node remembers, or the data that come with an embedded task]",
)
@click.option(
    "--show-rows",
    "is_public",
    is_flag=True,
    help="Let the node's page and its reports show some of the rows that --compare looks at, with the answers. Rows "
    "that come with an embedded task are shown without it, all others only with it.",
)
@click.option(
    "--no-private-reward",
    "is_rule",
    is_flag=True,
    help="Check answers by the run's rule, although the node remembers a command of its own for that.",
)
@options.device_options
@options.json_option
def evaluate(
    data_dir: DataDirectory,
    model: str | None,
    revision: str | None,
    eval_data: str | None,
    at_step: AtStep | None,
    compare: bool,
    data: str | None,
    is_public: bool,
    is_rule: bool,
    devices: DeviceOptions,
) -> None:
    """Measure how good a trained model is on held-out data.

    It prints accuracy, F1 (mean over the labels) and loss. In a run that learns from rewards it measures the mean
    reward of the likeliest answers, from 0 to 1, and the share of those with the whole reward. With --json there are
    also the first rows of the held-out data, with the answers.

    With --compare there are three lines: the model alone; the run now, or at --at-step; and own data alone, which is a
    model that has made as many steps with your examples only, by the run's rule: that takes as long as these steps take
    a node. The result is kept: `sfnode status`, `top`, `ask`, `run show` and the page show it.

    \b
    Example: sfnode eval my-run --eval-data dev.jsonl
    """
    check_can_train()
    if not compare and (data is not None or is_public):
        option = "--show-rows is" if is_public else "--data names the examples"
        raise OperatorError(f"{option} for --compare: add --compare, or leave {option.split()[0]} out")
    run = open_run(data_dir.path)
    state, manifest = run.state(at_step), run.manifest
    given = eval_data or _remembered(data_dir, "eval-data")
    is_public = is_public or given is None  # then they are those of an embedded task
    held_out = example_files.evaluation_file(manifest.task, given)
    if held_out is None:
        raise OperatorError("--eval-data is missing: give a file of held-out examples (JSONL, CSV, TSV or Parquet)")
    own, rows = None, data or _remembered(data_dir, "data")
    if compare and (rows or manifest.task.data.startswith(example_files.EMBEDDED)):
        own = example_files.training_file(manifest.task, rows)
    private_reward = None if is_rule else read_settings(data_dir).get("private-reward")
    config = TrainingConfig(
        model=model_of(manifest, data_dir, model, revision),
        data=None,
        eval_data=held_out,
        devices=devices,
        basis=data_dir.basis.find(manifest),
        private_reward=private_reward if isinstance(private_reward, str) else None,
    )
    if config.private_reward is not None and not options.is_json():
        what = f"as this node does, by {config.private_reward!r}; with --no-private-reward by the run's rule"
        click.echo(printable(f"Note: answers are checked {what}"), err=True)
    states = [Coefficients(manifest), state.coefficients] if compare else [state.coefficients]
    with counting("evaluating", "rows", is_json=options.is_json()) as report:
        results = trio.run(evaluate_states, run.signed, config, states, report)
    named, quality = dict(zip(("before", "after")[-len(states) :], results, strict=True)), Quality.of(manifest.task)
    labels = _NAMES if at_step is None else {**_NAMES, "after": f"the run, step {state.steps}"}
    _show(named, quality, labels)
    if compare and not options.is_json():
        _show_answers(named, labels)
    if own is not None:
        with counting("training on your own examples alone", "steps", is_json=options.is_json()) as report:
            alone = partial(evaluate_alone, steps=state.steps, on_progress=report)
            named["own"] = trio.run(alone, run.signed, replace(config, data=own), _ALONE)
        _show({"own": named["own"]}, quality, labels)
    if compare:
        steps = {name: state.steps if name != "before" else 0 for name in named}
        removed = {"after": evaluations.removed_before(state.roster.removals(), state.steps)}
        kept = {name: evaluated_step(named[name], steps[name], quality, removed.get(name, "")) for name in named}
        _keep(data_dir, kept, is_public)
    if options.is_json():
        fields = {name: _as_json(found, quality) for name, found in named.items()}
        options.print_json({**fields, "step": state.steps, "state_digest": state.coefficients.digest().hex()})


def _remembered(data_dir: DataDirectory, key: str) -> str | None:
    """Return the data that the node remembers under ``key``, if they are still there. OperatorError."""
    data = read_settings(data_dir).get(key)
    is_file = isinstance(data, str) and os.path.isfile(disk.from_home(data))
    return str(data) if is_file or str(data).startswith(example_files.ELSEWHERE) else None


def _as_json(found: Evaluated, quality: Quality) -> dict[str, object]:
    plain: dict[str, object] = {"accuracy": found.accuracy, "f1": found.f1, "loss": found.loss, "rows": found.rows}
    if quality.is_reward:
        spread = None if found.spread is None else asdict(found.spread)
        plain |= {"reward": quality.reward(found.loss), "spread": spread}
    return {**plain, "answers": [asdict(each) for each in found.answers]}


def _show(results: dict[str, Evaluated], quality: Quality, labels: Mapping[str, str]) -> None:
    """Print a line for each result; JSON comes in one piece at the end."""
    for name, result in results.items() if not options.is_json() else ():
        f1 = "" if result.f1 is None else f"F1 {100 * result.f1:.2f} %, "
        figure = f"{quality.name} {quality.figure(result.loss)}"
        spread = "" if result.spread is None else f"; {printable(result.spread.in_words())}"
        text = f"{quality.share(result.accuracy, 2)}, {f1}{figure}, {counted(result.rows, 'row')}{spread}"
        click.echo(f"{labels[name]:<15} {text}")


def _show_answers(results: dict[str, Evaluated], labels: Mapping[str, str]) -> None:
    """Print the answers to the first prompts, of each result; none where the model writes none."""
    for answers in zip(*(result.answers[:_ANSWERS_SHOWN] for result in results.values()), strict=True):
        right = f"  (right: {answers[0].right})" if answers[0].right else ""
        click.echo(printable(f"prompt: {answers[0].prompt}{right}"))
        for name, answer in zip(results, answers, strict=True):
            reward = "" if answer.right else f"  (reward {answer.reward:.2f})"
            click.echo(printable(f"  {labels[name]:<15} {answer.text or '(nothing)'}{reward}"))


def _keep(data_dir: DataDirectory, named: dict[str, EvaluatedStep], is_public: bool) -> None:
    try:
        gain = Gain(before=named["before"], own=named.get("own"), after=named["after"], is_public=is_public)
        data_dir.gain.write(gain)
    except OperatorError as error:
        click.echo(f"Warning: {error}", err=True)
