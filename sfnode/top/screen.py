"""Draw the screen of `sfnode top`: one node in full, or a row for each of several, for 80 columns and 24 lines."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from protocol.errors import OperatorError
from sfnode.quality_figures import Quality
from sfnode.reporter import counted, format_rate, format_seconds, printable
from sfnode.status import (
    CurveStatistics,
    News,
    Status,
    StatusDetail,
    StatusWords,
    admission_of,
    author_names,
    health_of,
    learning,
    read_status,
    sparkline,
)
from sfnode.storage import DataDirectory, pasteable

_CURVE_COLUMNS = 30
_PEERS_MAX = 6  # more would not fit into 24 lines with the rest
_WARNING_LINES = 3  # that a warning may take
_NEWS_MAX = 3
_LINES = 24
_COLUMNS = 80
_LINES_ROUND_ROWS = 4  # of several nodes: the head, how many more there are, an empty line and the last one
_PARTS = 1_000  # of a progress bar
_PEER_COLUMNS = ("peer", "", "address", "delay", "updates", "equal", "score")
_FIGURES = ("delay", "updates", "score")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """Holds one node as last seen.

    Attributes:
        status: the last one that could be read; None: none yet.
        trouble: why there is no status now: the node stopped, hangs or never ran; empty while it reports.
        is_done: it has stopped because its run is over.
    """

    data_dir: DataDirectory
    status: Status | None = None
    trouble: str = ""
    is_done: bool = False

    def warnings(self) -> list[str]:
        """Return warnings for the operator, the worst first; each is a sentence without its full stop."""
        if self.trouble or self.status is None:
            return [self.trouble] if self.trouble else []
        return [text for text in (health_of(self.status)[1], learning.describe_learning(self.status)) if text]


def look(view: NodeView) -> NodeView:
    """Return a new view of the node; keep the last status where no newer one can be read."""
    try:
        return NodeView(data_dir=view.data_dir, status=read_status(view.data_dir))
    except OperatorError as error:
        trouble = str(error)
    # A node whose run was over when it was last seen has left, and not failed.
    if view.status is None or not view.status.end.is_over or not trouble.startswith("no node runs"):
        return replace(view, trouble=trouble)
    export = pasteable("sfnode export --data-dir", view.data_dir)
    return replace(view, trouble=f"the node has finished its run and stopped. Its model: {export}", is_done=True)


def draw(views: Sequence[NodeView], *, lines: int = 24, is_ascii: bool = False) -> RenderableType:
    """Return the screen of one node or several; ``is_ascii``: use no other characters."""
    if len(views) == 1:
        return _draw_one(views[0], lines, is_ascii)
    return _draw_several(views, lines)


# --- one node


def _draw_one(view: NodeView, lines: int, is_ascii: bool) -> RenderableType:
    status = view.status
    if status is None:
        return Group(*_warnings_of([view]), Text(), _footer())
    style = "dim" if view.trouble else ""
    body: list[RenderableType] = [_title(status), *_warnings_of([view])]
    body.append(_facts(status, is_ascii, style))
    if status.detail is not None:
        spare = max(0, lines - _LINES) - (_WARNING_LINES if view.warnings() else 0)
        body.extend(_peers(status.detail, _PEERS_MAX + spare, style))
        body.extend(_news(status.detail.news))
    return Group(*body, Text(), _footer())


def _title(status: Status) -> Text:
    text = Text(printable(status.node.run), style="bold cyan", overflow="ellipsis", no_wrap=True)
    who = f"{status.life.own_name} {author_names.short_key(status.node.author)}".strip()
    text.append(f"  {status.node.run_id[:16]}  node {printable(who)}", style="not bold dim")
    if status.detail is not None:
        text.append(f"  up {format_seconds(status.detail.uptime_s)}", style="not bold dim")
    return text


def _facts(status: Status, is_ascii: bool, style: str) -> Table:
    grid = Table.grid(padding=(0, 1), expand=True)  # else a long value takes the room of the labels
    grid.add_column(width=9, no_wrap=True, style="dim")
    grid.add_column(ratio=1, style=style)
    for name, value in _rows(status, is_ascii):
        grid.add_row(name, value)
    return grid


def _rows(status: Status, is_ascii: bool) -> Iterator[tuple[str, RenderableType]]:
    detail = status.detail
    yield "run", _progress(status)
    if status.life.model is not None:
        yield "model", Text(printable(status.life.model.text), style="yellow")
    if detail is not None:
        quality = StatusWords(status).quality
        text = "none yet" if status.training.loss is None else quality.figure(status.training.loss)
        values = [quality.value(each.loss) for each in detail.curve.losses]
        yield quality.training_short, _curve_line(values, text, is_ascii)
        yield "held-out", _held_out(detail.curve, quality, is_ascii)
        if detail.curve.gain is not None:
            yield "gain", Text(detail.curve.gain.in_short())
        yield "updates", _updates(status, detail)
        yield "equal", _equal(status, detail)
    yield "admitted", Text(printable(admission_of(status).partition(":")[0]))  # a warning has the rest
    memory = status.network.memory
    worker = f", worker {detail.processes_bytes >> 20} MiB" if detail is not None and detail.processes_bytes else ""
    yield "memory", Text(memory.in_words(), style="yellow" if memory.is_full else "").append(worker)
    if detail is not None:
        rates = f"{format_rate(detail.bytes_in_per_s)} in, {format_rate(detail.bytes_out_per_s)} out"
        yield "speed", Text(f"{detail.rows_per_s:,.0f} forward rows/s, {rates}")


def _progress(status: Status) -> RenderableType:
    node, words = status.node, StatusWords(status)
    done, total, stage = node.step, node.steps, words.stage
    if status.is_catching_up:
        done, total, stage = status.ledger.updates, node.catching_up, "catching up"
    elif status.detail is not None and not node.own_updates:
        done = max(done, status.detail.progress.run_step)
    if node.is_finished and not status.is_catching_up:
        stage = f"finished, {words.end}"
    grid = Table.grid(padding=(0, 1))
    share = min(1.0, done / total) if total else 0.0
    texts = [stage, words.directions, words.pace, words.time_left]
    bar = ProgressBar(total=_PARTS, completed=int(_PARTS * share), width=18)
    bar.style, bar.complete_style, bar.finished_style = "grey37", "cyan", "green"
    style = "green" if node.is_finished else "bold"
    grid.add_row(bar, f"{100 * share:.0f} %", Text(", ".join(text for text in texts if text), style=style))
    return grid


def _curve_line(values: Sequence[float], text: str, is_ascii: bool) -> Text:
    line = Text(f"{text:<12} ")
    if len(values) > 1:
        line.append(sparkline(values, _CURVE_COLUMNS, is_ascii=is_ascii), style="cyan")
    return line


def _held_out(curve: CurveStatistics, quality: Quality, is_ascii: bool) -> Text:
    if not curve.evaluations or curve.best is None:
        return Text("not measured on this node: see --eval-every", style="dim")
    last, best = curve.evaluations[-1], curve.best
    values = [quality.value(each.loss) for each in curve.evaluations]
    line = _curve_line(values, quality.figure(last.loss), is_ascii)
    line.append(f" {100 * last.accuracy:.1f} % {'fully ' if quality.is_reward else ''}right")
    line.append(", the best" if best == last else f", best: step {best.step}", style="dim")
    return line


def _updates(status: Status, detail: StatusDetail) -> Text:
    ledger, progress = status.ledger, detail.progress
    share = f" ({100 * progress.own_updates / ledger.updates:.1f} %)" if ledger.updates else ""
    text = f"{counted(ledger.updates, 'update')} of {counted(ledger.authors, 'author')}, {progress.own_updates:,} own"
    lag = f", {counted(progress.lag_steps, 'step')} behind" if progress.lag_steps else ""
    return Text(f"{text}{share}{lag}")


def _equal(status: Status, detail: StatusDetail) -> Text:
    count = len(detail.peers)
    equal = sum(peer.is_equal for peer in detail.peers)
    if not count:
        return Text("no peers" if status.network.expects_peers else "alone: no other node is known", style="yellow")
    line = Text().append(f"with {equal} of {counted(count, 'peer')}", style="green" if equal == count else "")
    held = [peer.own_updates_min for peer in detail.peers if peer.own_updates_min]
    if held:
        line.append(f"; {min(held):,} or more own updates held by {len(held)} of them", style="dim")
    return line


def _peers(detail: StatusDetail, count_max: int, style: str) -> Iterator[RenderableType]:
    if not detail.peers:
        return
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim", style=style)
    for name in _PEER_COLUMNS:
        table.add_column(name, justify="right" if name in _FIGURES else "left", no_wrap=True, overflow="ellipsis")
    for peer in detail.peers[:count_max]:
        row = (
            author_names.label_of_peer(peer),
            "out" if peer.is_outbound else "in",
            peer.address.split("/p2p/")[0],
            "" if peer.rtt_ms is None else f"{peer.rtt_ms:.0f} ms",
            "" if peer.updates is None else f"{peer.updates:,}",
            "yes" if peer.is_equal else "no",
            f"{peer.score:.0f}",
        )
        table.add_row(*(printable(cell) for cell in row))
    yield Text()
    yield table
    if len(detail.peers) > count_max:
        yield Text(f"and {len(detail.peers) - count_max} more", style="dim")


def _news(news: Sequence[News]) -> Iterator[RenderableType]:
    if news:
        yield Text()
    for each in news[-_NEWS_MAX:]:
        when = time.strftime("%H:%M:%S", time.localtime(each.time))
        line = Text(no_wrap=True, overflow="ellipsis").append(f"{when} ", style="dim")
        yield line.append(printable(each.text), style="yellow" if each.is_bad else "")


# --- several nodes


def _draw_several(views: Sequence[NodeView], lines: int) -> RenderableType:
    """Draw a row for each node, and the warnings below; where not all fit, nodes that have one come first."""
    fitting: list[Text] = []
    taken = 0
    for text in _warnings_of(views):
        taken += 1 + len(text) // _COLUMNS
        if taken > lines // 2:
            fitting.append(Text("further warnings do not fit: `sfnode doctor` says them", style="dim"))
            break
        fitting.append(text)
    rows = max(1, lines - _LINES_ROUND_ROWS - min(taken, lines // 2 + 1))
    shown = views if len(views) <= rows else sorted(views, key=lambda view: not view.warnings())[:rows]
    table = _table_of(shown)
    if len(shown) < len(views):
        table.add_row(f"and {len(views) - len(shown)} more", style="dim")
    return Group(table, *fitting, Text(), _footer())


def _table_of(views: Sequence[NodeView]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    names = {StatusWords(view.status).quality.training_short for view in views if view.status is not None}
    for name in ("node", "stage", "/".join(sorted(names)) or "loss", "right", "peers", "own", "left"):
        table.add_column(name, no_wrap=True, overflow="ellipsis", max_width=20 if name == "node" else None)
    for view in views:
        table.add_row(*(Text(printable(cell)) for cell in _cells(view)), style="dim" if view.trouble else "")
    return table


def _cells(view: NodeView) -> tuple[str, ...]:
    status = view.status
    if status is None:
        return (view.data_dir.path.name, "not seen", "", "", "", "", "")
    detail = status.detail
    words, loss = StatusWords(status), status.training.loss
    figure = "" if loss is None else words.quality.figure(loss, 3)
    accuracy = f"{100 * detail.curve.evaluations[-1].accuracy:.1f} %" if detail and detail.curve.evaluations else ""
    stage = "finished" if status.node.is_finished else words.stage.replace(", the run is at", "")
    return (
        view.data_dir.path.name,
        f"gone at step {status.node.step}" if view.trouble and not view.is_done else stage,
        figure,
        accuracy,
        str(status.node.peers),
        f"{detail.progress.own_updates if detail else status.node.own_updates:,}",
        words.time_left.removesuffix(" left"),
    )


# --- both


def _warnings_of(views: Sequence[NodeView]) -> Iterator[Text]:
    for view in views:
        for text in view.warnings():
            name = f"{view.data_dir.path.name}: " if len(views) > 1 else ""
            if view.is_done:
                yield Text(printable(name + text), style="green")
            else:
                yield Text(f"! {printable(name + text)}", style="bold red" if view.trouble else "yellow")


def _footer() -> Text:
    return Text("q quits; `sfnode doctor` says what to do about a node that is unwell", style="dim")
