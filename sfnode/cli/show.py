"""``sfnode run show``: print the statements and the authors' parts that a node holds, or the facts of a run file."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from protocol.errors import OperatorError
from protocol.ledger import StatementCodec, StatementKind
from protocol.run import Manifest, Objective, ScalarKind
from protocol.schema import to_plain
from protocol.state import LeavingOut, Replica, effects_of_leaving_out
from sfnode.cli.option_values import NodeFolder, NodeOrFile
from sfnode.cli.options import is_json, json_option, print_json, print_result
from sfnode.page import Contribution, contributions_to, facts_of
from sfnode.reporter import counted, counting, printable
from sfnode.run import default_directory, purpose_of
from sfnode.status import Names, author_names
from sfnode.storage import DataDirectory, decode_run_file, evaluations

_Part = tuple[Contribution, float, LeavingOut | None]  # counts, share of all updates that count, effect if known


@click.command()
@click.argument("path", metavar="[NODE|FILE]", required=False, type=NodeOrFile)
@click.option("--data-dir", type=NodeFolder, metavar="NODE", help="Use this node, as NODE does.")
@json_option
def show(path: Path | DataDirectory | None, data_dir: DataDirectory | None) -> None:
    """Show the owner's statements that a node holds, and who has contributed what; or what a run FILE says.

    For each author: the updates that count, their share of all, the last step, and "left out", which is how the loss
    would change, to first order, were the author's updates taken out of the model. What they have moved is multiplied
    by the slope that the scalars of all other authors show in the same epochs of the subspace (with a dense core: in
    the steps just before and after), on average. Greater than zero: the author has helped. After ± stands the standard
    error; within two of it, nothing is known.

    The unit is that of the loss of an example; in runs of normalised scalars, which do not say how steep the slopes
    were, it is the root mean square of a message's slopes ("rms"). It does not say what the others would have measured
    without the author, nor who is honest: that is asked by `sfnode audit`.

    The last lines say what the model learns, and how good the model alone, the run now and own data alone were when
    `sfnode eval --compare` measured them last.

    \b
    Example: sfnode run show my-run
    """
    if path is not None and data_dir is not None:
        raise OperatorError("say what to show, once, by NODE, FILE, --data-dir: a node of `sfnode list`, or a run file")
    if isinstance(path, Path):
        facts = facts_of(decode_run_file(path).manifest)
        fields = {"kind": "run", **{name.lower().replace(" ", "_"): value for name, value in facts}}
        print_result(fields, "\n".join(f"{name:<16} {printable(value)}" for name, value in facts))
        return
    held = data_dir or path or default_directory.only_node()
    manifest = held.signed_manifest().manifest
    with held.reading() as stored:
        statements = [StatementCodec(manifest).decode_untrusted(data) for data in stored.statements()]
        replica = stored.replica(manifest)
        parts, names = _parts(replica), author_names.stored_names(held, stored, replica.ledger.roster)
    roster = replica.ledger.roster
    gain = held.gain.standing(roster) or evaluations.gain_of(evaluations.standing(held.evaluations.read(), roster))
    if is_json():
        rows = [(each.kind.name.lower(), each.author.hex(), each.from_step) for each in statements]
        document: dict[str, object] = {
            "kind": "node",
            "statements": [dict(zip(("kind", "author", "from_step"), row, strict=True)) for row in rows],
            "authors": _as_json(parts, manifest, names),
            "gain": gain and {"kind": "gain", **to_plain(gain.without_answers(), as_rows=False)},
        }
        print_json(document)
        return
    for each in statements:
        since = f"  from step {each.from_step}" if each.kind is StatementKind.EXCLUDE else ""
        click.echo(f"{each.kind.name.lower():<8} {each.author.hex()}{since}")
    _show_parts(parts, manifest, names)
    click.echo(f"\n{'learns':<8} {printable(purpose_of(manifest.task))}")
    click.echo(f"{'gain':<8} {evaluations.HOW_TO_MEASURE if gain is None else gain.in_words()}")


def _parts(replica: Replica) -> list[_Part]:
    found = contributions_to(replica.ledger, replica.manifest)
    in_all = max(1, sum(each.updates for each in found))
    unit = "steps" if replica.manifest.method.is_dense else "authors"
    with counting("summing each author's updates", unit, is_json=is_json()) as report:
        effects = effects_of_leaving_out(replica, report)
    return [(each, each.updates / in_all, effects[each.author]) for each in found]


def _unit(manifest: Manifest) -> str:
    objective = manifest.task.objective
    unit = objective.value if objective is Objective.LOSS else f"1 - {objective.value}"
    return unit if manifest.method.scalar is ScalarKind.RAW else "rms"


def _as_json(parts: Sequence[_Part], manifest: Manifest, names: Names) -> list[dict[str, object]]:
    rows = []
    for counts, share, effect in parts:
        author, left_out = counts.author.hex(), effect and {**asdict(effect), "unit": _unit(manifest)}
        known = {name: value for name, value in asdict(counts).items() if name not in ("author", "cells")}
        row = {"kind": "author", "author": author, **known, "share": round(share, 6), "left_out": left_out}
        rows.append({**row, "name": names.of(author)})
    return rows


def _show_parts(parts: Sequence[_Part], manifest: Manifest, names: Names) -> None:
    labels = [printable(names.label(each.author.hex())) for each, _, _ in parts]
    width = max(map(len, labels), default=0)
    if parts:
        click.echo(f"\n{'author':<{width}} {'updates':>9} {'share':>6} {'last step':>9}  left out ({_unit(manifest)})")
    for label, (counts, share, effect) in zip(labels, parts, strict=True):
        last = "-" if counts.last_step < 0 else f"{counts.last_step:,}"
        figures = f"{counts.updates:>9,} {share:>6.1%} {last:>9}"
        click.echo(f"{label:<{width}} {figures}  {_effect(counts, effect)}")


def _effect(counts: Contribution, effect: LeavingOut | None) -> str:
    if effect is None:
        return "nobody else has measured" if counts.updates else "-"
    text = f"{effect.change:+.3g} ± {effect.error:.2g}"
    return text if effect.updates == counts.updates else f"{text}, of {counted(effect.updates, 'update')}"
