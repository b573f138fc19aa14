"""``sfnode status``: print the status of a running node."""

import click

from sfnode.cli import exit_codes
from sfnode.cli.exit_codes import ExitCode
from sfnode.cli.options import is_json, json_option, node_option, print_json
from sfnode.network import PeerState
from sfnode.reporter import counted, format_rate, printable
from sfnode.status import Status, StatusWords, admission_of, author_names, health_of, learning, read_status, sparkline
from sfnode.storage import DataDirectory, pasteable

_CURVE_COLUMNS = 48


@click.command()
@node_option
@click.option(
    "--running",
    "is_running_enough",
    is_flag=True,
    help="Check no more than whether the node runs and reports, as a container's health check does.",
)
@json_option
def status(data_dir: DataDirectory, is_running_enough: bool) -> None:
    """Show how a running node is doing.

    The exit code is 0 if all is well, 1 if no node runs there or it does not report, 3 if it has no peers although it
    knows of some, 4 if it may not contribute, 5 if the owner has excluded it, 6 if it is paused or cannot measure.

    \b
    Example: sfnode status my-run
    """
    current = read_status(data_dir)
    if is_json():
        print_json(current.to_json())
    else:
        _show(current)
    if why := learning.describe_learning(current):
        click.echo(f"Warning: {printable(why)}", err=True)
    code, trouble = health_of(current)
    if code:
        exit_codes.warn(code, trouble, pasteable("sfnode doctor --data-dir", data_dir))
        raise SystemExit(ExitCode.DONE if is_running_enough else code)


def _show(current: Status) -> None:
    for name, value in _rows(current).items():
        if value:
            click.echo(f"{name:<8} {printable(value)}")
    if current.detail is not None:
        for peer in current.detail.peers:
            click.echo(f"{'':<8} {printable(_describe_peer(peer))}")


def _rows(current: Status) -> dict[str, str]:
    words, detail = StatusWords(current), current.detail
    node, ledger, network, life = current.node, current.ledger, current.network, current.life
    loss = current.training.loss
    of_what = "on the last training batch"
    stage = (words.stage, words.directions, words.pace, words.time_left)
    excluded = counted(current.roster.authors_excluded, "author")
    lag, curve, speed, memory = "", "", "", network.memory.in_words()
    if detail is not None:
        if steps := detail.progress.lag_steps:
            lag = f"{counted(steps, 'step')} behind the median of the others"
        # Of the held-out losses, or else of the training losses, from the first step to the last; or of rewards.
        values = [words.quality.value(each.loss) for each in detail.curve.evaluations or detail.curve.losses]
        if len(values) > 1:
            what = f"training {words.quality.training_short}"
            what = f"held-out {words.quality.short_name}" if detail.curve.evaluations else what
            curve = f"{sparkline(values, _CURVE_COLUMNS)} {what}"
        rates = f"{format_rate(detail.bytes_in_per_s)} in, {format_rate(detail.bytes_out_per_s)} out"
        speed = f"{detail.rows_per_s:,.1f} forward rows a second, {rates}"
        memory += f", its worker {detail.processes_bytes >> 20} MiB" if detail.processes_bytes else ""
    return {
        "run": f"{node.run} ({node.run_id[:16]})",
        "learns": life.learns,
        "node": f"{life.own_name} {author_names.short_key(node.author)}".strip(),
        "stage": ", ".join(part for part in stage if part),
        "lag": lag,
        "updates": f"{counted(ledger.updates, 'update')} of {counted(ledger.authors, 'author')}, "
        f"{counted(ledger.void_slots, 'void slot')}",
        "own": words.own_updates,
        "paused": life.paused,
        "admitted": f"{admission_of(current)} ({current.roster.admission}; {excluded} excluded)",
        words.quality.training_short: "none yet" if loss is None else f"{words.quality.figure(loss)} {of_what}",
        "held-out": words.evaluations,
        "": curve,
        "privacy": "" if current.training.privacy is None else current.training.privacy.in_words(),
        "gain": words.gain,
        "speed": speed,
        "memory": memory,
        "disk": "" if life.disk_free_bytes is None else f"{life.disk_free_bytes / 1e9:,.1f} GB free",
        "moved": f"{network.bytes_in:,} bytes in, {network.bytes_out:,} out",
        "ledger": node.ledger_root or "catching up",
        "state": node.state_digest or "catching up",
        "slips": words.slips,
        "model": life.model.text if life.model is not None else "",
        "join": pasteable("sfnode join", life.join_string) if life.join_string else "",
        "peers": words.peers,
    }


def _describe_peer(peer: PeerState) -> str:
    delay = "" if peer.rtt_ms is None else f"{peer.rtt_ms:.0f} ms"
    way = "to" if peer.is_outbound else "from"
    score = f" score {peer.score:.0f}" if peer.score <= -1 else ""
    label, equal = author_names.label_of_peer(peer), " equal" if peer.is_equal else ""
    return f"{label} {way:<4} {peer.address:<36} {delay:>7}{equal}{score}"
