"""``sfnode testnet``: run a whole network on this machine, to see it work."""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import click
import trio
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from protocol.errors import OperatorError, SfnodeError
from protocol.run import TaskSpec
from sfnode import demo
from sfnode.cli.new_run import make_run
from sfnode.cli.option_values import FiniteFloat, FolderPath
from sfnode.cli.options import (
    device_options,
    group,
    is_json,
    json_option,
    learning_options,
    model_option,
    number_option,
    print_json,
)
from sfnode.quality_figures import Quality
from sfnode.reporter import counted, printable
from sfnode.rows import TaskTemplate, row_files
from sfnode.run import DataOptions, RewardOptions, RunOptions
from sfnode.storage import disk, evaluations, example_files, stored_basis
from sfnode.testnet import Learnt, LocalNetwork, LocalNetworkConfig, LocalNetworkResult, LocalNode
from sfnode.worker_protocol import DeviceOptions, TrainingConfig

_NAME = "testnet"
_NODES_MAX = 256  # processes of one machine
_TASK = example_files.EMBEDDED + demo.DATA_NAME
_PRINT_S, _AGAIN_S = 2.0, 30.0  # between lines, and before the same ones again
_SHOWN_MAX = 12  # nodes that a line of progress names
_STEPS_IN_WORDS = f"{demo.STEPS}, and {RewardOptions.usual_steps} with --reward"


@click.command()
@number_option("--nodes", 4, "Start this many nodes, each a process of its own.", most=_NODES_MAX)
@number_option("--late", 0, "Start this many more nodes when half of the steps are done.", least=0, most=_NODES_MAX)
@number_option(
    "--workers", 1, "Let this many training processes serve the nodes, each with the model in memory.", most=_NODES_MAX
)
@group(
    "options",
    RunOptions,
    number_option("--steps", None, f"Let each node make this many steps.  [default: {_STEPS_IN_WORDS}]"),
    model_option(example_files.EMBEDDED + demo.MODEL_NAME),
    learning_options,
    group(
        "data",
        DataOptions,
        click.option("--data", help="Train on this file of rows.  [default: the data of the demo]"),
        click.option(
            "--private-data",
            "is_private",
            is_flag=True,
            help="Give each node a part of --data for itself alone, rows in turn; the basis is made from all of it.",
        ),
    ),
)
@click.option(
    "--members",
    "is_members",
    is_flag=True,
    help="Train each part of --private-data alone at the end, too, to show what a node gets from the others.",
)
@click.option(
    "--eval-data", help="Measure the accuracy on this file of held-out rows.  [default: the data of the demo]"
)
@click.option(
    "--dir",
    "folder",
    type=FolderPath,
    help="Keep the run file, the nodes' directories and their logs in this folder.  [default: a new temporary folder]",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=FiniteFloat(1),
    default=3_600.0,
    show_default=True,
    help="Give up after this many seconds.",
)
@click.option(
    "--points-min", type=FiniteFloat(-100, 100), help="Fail unless the held-out accuracy rises by this many points."
)
@device_options
@json_option
def testnet(
    nodes: int,
    late: int,
    workers: int,
    options: RunOptions,
    is_members: bool,
    eval_data: str | None,
    folder: Path | None,
    timeout_s: float,
    points_min: float | None,
    devices: DeviceOptions,
) -> None:
    """Run a whole network of nodes on this machine.

    Without a task or a reward it runs the demo: along random directions, as after `sfnode init --plain`. It ends when
    all nodes hold the same model. The exit code is 0 only if all nodes and an offline replay of a ledger have the same
    state digest, every node stopped cleanly, and the accuracy rose by --points-min.

    \b
    Example: sfnode testnet --nodes 4 --late 1 --steps 120
    """
    options = _with_demo(options)
    rows = options.data.named(options.task)
    if rows is None:
        raise OperatorError("--data is missing: give a JSONL file or CSV, or embedded:reviews")
    if eval_data is None and rows.startswith(example_files.EMBEDDED):
        eval_data = rows
    if is_members and not (options.data.is_private and eval_data):
        raise OperatorError("--members compares parts of --private-data on --eval-data: give both")
    folder = (folder or Path(tempfile.mkdtemp(prefix="sfnode-testnet-"))).resolve()
    with disk.os_errors(f"use --dir {folder}"):
        held = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    if held:
        raise OperatorError(f"{folder} holds {held[0]!r}: choose a new --dir, for nothing is overwritten")
    if eval_data is not None:  # a slip in it shows before minutes of work on a basis
        row_files.checked_texts(example_files.locate(eval_data, split="eval"), options.texts.row_template)
    basis = folder / f"{_NAME}{stored_basis.BASIS_ENDING}"
    run = make_run(options, folder / "owner.key", default_name=_NAME, basis_out=basis)
    signed = run.signed
    data = example_files.training_file(signed.manifest.task, run.data)
    training = TrainingConfig(
        model=options.model,
        data=data,
        eval_data=example_files.evaluation_file(signed.manifest.task, eval_data),
        devices=devices,
        basis=run.basis,
    )
    config = LocalNetworkConfig(
        folder=folder,
        signed=signed,
        nodes=nodes,
        late_nodes=late,
        workers=workers,
        training=training,
        timeout_s=timeout_s,
        shards=_shards(data, signed.manifest.task, nodes + late, folder) if options.data.is_private else (),
        is_members=is_members,
    )
    view = _View(Quality.of(signed.manifest.task))
    try:
        result = trio.run(LocalNetwork(config, view.show, view.show_member, view.show_end).run)
    finally:
        view.close()
    if is_json():
        print_json(_as_json(result))
    else:
        _print_result(result, Quality.of(signed.manifest.task))
    _check(result, folder, points_min)


def _with_demo(options: RunOptions) -> RunOptions:
    """Return the options with the demo's steps and task, where no others are given."""
    if options.steps is None and options.reward.rule_text is None:
        options = replace(options, steps=demo.STEPS)
    said = (options.task.task, options.task.template, options.task.completion, options.reward.rule_text)
    if any(each is not None for each in said):
        return options
    # Plain, because the demo shows what the network learns, not what its owner knows
    return replace(options, task=replace(options.task, task=_TASK), is_plain=True)


def _shards(data: Path, task: TaskSpec, count: int, folder: Path) -> tuple[Path, ...]:
    """Deal the rows of ``data`` out to ``count`` files in ``folder``; return their paths. Raises OperatorError."""
    lines = row_files.lines_of(data, TaskTemplate(task))
    if len(lines) < count:
        raise OperatorError(f"{data} has {len(lines)} examples for {count} nodes: give more, or fewer --nodes")
    paths = tuple(folder / f"data{number}.jsonl" for number in range(count))
    for number, path in enumerate(paths):
        disk.write_new(path, ["".join(lines[number::count]).encode()])
    return paths


def _check(result: LocalNetworkResult, folder: Path, points_min: float | None) -> None:
    if not result.is_in_time:
        raise SfnodeError(f"not over after {result.seconds:.0f} s: give it a longer --timeout; logs are in {folder}")
    if not result.is_agreed:
        raise SfnodeError(f"the nodes do not agree: {sorted(set(result.state_digests))}; see the logs in {folder}")
    if not result.is_stopped_cleanly:
        raise SfnodeError(f"a node did not stop cleanly; see the logs in {folder}")
    if points_min is None:
        return
    if result.learnt is None:
        raise OperatorError("--points-min needs held-out data: give --eval-data")
    if result.learnt.points < points_min:
        why = f"held-out accuracy changed by {result.learnt.points:+.1f} points, at least {points_min:+.1f} were wanted"
        raise SfnodeError(f"{why}: try more --steps or another --learning-rate")


def _steps(nodes: Sequence[LocalNode]) -> str:
    """Return the steps of all nodes in words, of many nodes the lowest and the highest."""
    steps = {node.name: node.status.node.step if node.status else "-" for node in nodes}
    if len(nodes) <= _SHOWN_MAX:
        return ", ".join(f"{name} {step}" for name, step in steps.items())
    made = [step for step in steps.values() if isinstance(step, int)]
    return f"{len(made)} of {len(nodes)} nodes have started, at {min(made, default=0)} to {max(made, default=0)}"


class _View:
    """Shows the network on stderr while it works: a live table on a terminal, else a line every few seconds."""

    def __init__(self, quality: Quality) -> None:
        self._printed, self._lines, self._quality = 0.0, tuple[str, ...](), quality
        self._table = _table((), quality)
        self._console = Console(stderr=True)
        self._live = Live(console=self._console, refresh_per_second=2) if self._console.is_terminal else None
        if self._live:
            self._live.start()

    def show(self, nodes: Sequence[LocalNode]) -> None:
        self._table = _table(nodes, self._quality)
        known = [node.status for node in nodes if node.status is not None]
        losses = [each.training.loss for each in known if each.training.loss is not None]
        mean = next((each.life.model.text for each in known if each.life.model is not None), "nothing measured yet")
        if losses:
            mean = f"{self._quality.training_name} {self._quality.figure(sum(losses) / len(losses), 3)}"
        rows = [(node.name, *node.evaluating) for node in nodes if node.evaluating][:_SHOWN_MAX]
        works = [f"{name} evaluates: {done:,} of {total:,} rows" for name, done, total in rows]
        works += [f"{node.name}: {node.trouble}" for node in nodes if node.trouble and not losses][:1]
        if len(known) == len(nodes) and all(each.node.step >= each.node.steps for each in known):
            over = sum(each.end.is_over for each in known)
            works.append(f"all steps are made; {over} of {len(nodes)} nodes know that the run is over")
        self._say(f"steps: {_steps(nodes)}; {mean}", *works, below_table=works)

    def show_end(self, text: str) -> None:
        """Say what is waited for after the run, and each new stage at once: it may be silent for long."""
        if not self._lines or self._lines[0].partition(":")[0] != text.partition(":")[0]:
            self._printed = 0.0
        self._say(text, below_table=[text])

    def _say(self, *lines: str, below_table: Sequence[str]) -> None:
        if self._live:
            self._live.update(Group(self._table, *below_table))
        elif time.monotonic() - self._printed >= (_AGAIN_S if lines == self._lines else _PRINT_S):
            self._printed, self._lines = time.monotonic(), lines
            click.echo("\n".join(lines), err=True)

    def show_member(self, done: int, total: int) -> None:
        """Say how many nodes' parts have been trained alone."""
        self._console.print(f"training each node's part alone: {done} of {total}")

    def close(self) -> None:
        if self._live:
            self._live.stop()


def _table(nodes: Sequence[LocalNode], quality: Quality) -> Table:
    figure = quality.training_short
    table = Table("node", "step", "updates made", "applied", "peers", figure, "sent", "received", "state digest")
    for node in nodes:
        status = node.status
        if status is None:
            table.add_row(node.name, "starting")
            continue
        table.add_row(
            node.name,
            f"{status.node.step}/{status.node.steps}",
            str(status.node.own_updates),
            str(status.ledger.updates),
            str(status.node.peers),
            "" if status.training.loss is None else quality.figure(status.training.loss, 3),
            f"{status.network.bytes_out:,}",
            f"{status.network.bytes_in:,}",
            status.node.state_digest[:16],
        )
    return table


def _print_result(result: LocalNetworkResult, quality: Quality) -> None:
    Console(width=120).print(_table(result.nodes, quality))
    skipped = sum(each.node.skipped_steps for each in result.statuses)
    left_out = f", without those of {counted(skipped, 'skipped step')}" if skipped else ""
    rows = f"{result.updates} updates, {result.forward_rows:,} forward rows{left_out}"
    click.echo(f"time       {result.seconds:.1f} s for {rows}")
    wire, payload = result.wire_bytes, result.payload_bytes
    click.echo(f"traffic    {wire:,} bytes sent by all nodes; the updates themselves weigh {payload:,}")
    click.echo(f"replay     {result.replayed_digest} (offline, from one node's log)")
    if result.learnt is not None:
        _print_learnt(result.learnt, quality)
    click.echo(f"page       {result.page}")
    click.echo(f"all equal  {'yes' if result.is_agreed else 'NO'}")


def _print_learnt(learnt: Learnt, quality: Quality) -> None:
    before, after = (100 * each.accuracy for each in (learnt.before, learnt.after))
    if quality.is_reward:
        old, new = (quality.figure(each.loss) for each in (learnt.before, learnt.after))
        click.echo(f"reward     {evaluations.ALONE} {old}, {evaluations.NOW} {new} (mean, held-out)")
    name = "right" if quality.is_reward else quality.share_name
    points = f"{learnt.points:+.1f} points, held-out"
    click.echo(f"{name:<10} {evaluations.ALONE} {before:.1f} %, {evaluations.NOW} {after:.1f} % ({points})")
    if learnt.members is not None:
        middle, best = 100 * learnt.members.median, 100 * learnt.members.best
        click.echo(f"members    {evaluations.OWN_ALONE} {middle:.1f} % (median; the best {best:.1f} %)")
    if learnt.after.spread is not None:
        click.echo(printable(f"answers    {learnt.after.spread.in_words()}"))
    for was, now in zip(learnt.before.answers, learnt.after.answers, strict=True):
        rewards = f"reward {was.reward:.2f} -> {now.reward:.2f}"
        if now.right:
            rewards = "right" if now.reward else f"wrong, it is {now.right}"
        click.echo(printable(f"answer     {was.prompt}  {was.text!r} -> {now.text!r} ({rewards})"))


def _as_json(result: LocalNetworkResult) -> dict[str, object]:
    return {
        "agree": result.is_agreed,
        "state_digests": result.state_digests,
        "replayed_digest": result.replayed_digest,
        "learnt": None if result.learnt is None else asdict(result.learnt),
        "updates": result.updates,
        "forward_rows": result.forward_rows,
        "wire_bytes": result.wire_bytes,
        "payload_bytes": result.payload_bytes,
        "seconds": round(result.seconds, 3),
        "nodes": [{"name": node.name, **(node.status.to_json() if node.status else {})} for node in result.nodes],
        "page": str(result.page),
    }
