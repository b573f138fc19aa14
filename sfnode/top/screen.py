"""Draw the screen of `sfnode top`: one node in full, or a row for each of several, for 80 columns and 24 lines."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sfnode.reporter import counted, format_rate, format_seconds, printable
from sfnode.status import (
    News,
    PeerState,
    Status,
    StatusDetail,
    describe_directions,
    describe_end,
    describe_memory,
    describe_pace,
    describe_stage,
    describe_time_left,
    own_admission,
    short_peer,
    sparkline,
)
from sfnode.top.node_view import NodeView

_LABEL_COLUMNS: Final = 9
_BAR_COLUMNS: Final = 18
_CURVE_COLUMNS: Final = 30
_PEERS_MAX: Final = 6  # more would not fit into 24 lines with the rest
_NEWS_MAX: Final = 3
_NAME_COLUMNS: Final = 20
_LINES: Final = 24
_PARTS: Final = 1_000  # of a progress bar


def draw(views: Sequence[NodeView], *, lines: int = 24, is_ascii: bool = False) -> RenderableType:
    """Return the screen of one node or several; ``is_ascii``: use no other characters."""
    if len(views) == 1:
        return _draw_one(views[0], lines, is_ascii)
    return Group(_table_of(views), *_warnings_of(views), Text(), _footer())


# --- one node


def _draw_one(view: NodeView, lines: int, is_ascii: bool) -> RenderableType:
    status = view.status
    if status is None:
        return Group(*_warnings_of([view]), Text(), _footer())
    style = "dim" if view.trouble else ""
    body: list[RenderableType] = [_title(status), *_warnings_of([view])]
    body.append(_facts(status, is_ascii, style))
    if status.detail is not None:
        spare = max(0, lines - _LINES)
        body.extend(_peers(status.detail, _PEERS_MAX + spare, style))
        body.extend(_news(status.detail.news))
    return Group(*body, Text(), _footer())


def _title(status: Status) -> Text:
    text = Text(printable(status.run), style="bold cyan", overflow="ellipsis", no_wrap=True)
    text.append(f"  {status.run_id[:12]}  node {status.author[:12]}", style="not bold dim")
    if status.detail is not None:
        text.append(f"  up {format_seconds(status.detail.uptime_s)}", style="not bold dim")
    return text


def _facts(status: Status, is_ascii: bool, style: str) -> Table:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=_LABEL_COLUMNS, style="dim")
    grid.add_column(no_wrap=True, overflow="ellipsis", style=style)
    for name, value in _rows(status, is_ascii):
        grid.add_row(name, value)
    return grid


def _rows(status: Status, is_ascii: bool) -> Iterator[tuple[str, RenderableType]]:
    detail = status.detail
    yield "run", _progress(status)
    if status.model is not None:
        yield "model", Text(printable(status.model.text), style="yellow")
    if detail is not None:
        yield "loss", _curve_line([each.loss for each in detail.losses], _training_loss(status), is_ascii)
        yield "held-out", _held_out(detail, is_ascii)
        yield "updates", _updates(status, detail)
        yield "equal", _equal(status, detail)
    yield "admitted", Text(printable(own_admission(status)))
    yield "memory", _memory(status)
    if detail is not None:
        yield "speed", _speed(detail)


def _progress(status: Status) -> RenderableType:
    done, total = status.step, status.steps
    if status.catching_up > status.updates:
        done, total = status.updates, status.catching_up
    elif status.detail is not None and not status.own_updates:
        done = max(done, status.detail.run_step)
    grid = Table.grid(padding=(0, 1))
    share = min(1.0, done / total) if total else 0.0
    words = [_stage(status), describe_directions(status), describe_pace(status), describe_time_left(status)]
    bar = ProgressBar(total=_PARTS, completed=int(_PARTS * share), width=_BAR_COLUMNS)
    bar.style, bar.complete_style, bar.finished_style = "grey37", "cyan", "green"
    style = "green" if status.is_finished else "bold"
    grid.add_row(bar, f"{100 * share:.0f} %", Text(", ".join(word for word in words if word), style=style))
    return grid


def _stage(status: Status) -> str:
    if status.catching_up > status.updates:
        return "catching up"
    return f"finished, {describe_end(status)}" if status.is_finished else describe_stage(status)


def _training_loss(status: Status) -> str:
    return "none yet" if status.loss is None else f"{status.loss:.4f}"


def _curve_line(losses: Sequence[float], text: str, is_ascii: bool) -> Text:
    line = Text(f"{text:<12} ")
    if len(losses) > 1:
        line.append(sparkline(losses, _CURVE_COLUMNS, is_ascii=is_ascii), style="cyan")
    return line


def _held_out(detail: StatusDetail, is_ascii: bool) -> Text:
    if not detail.evaluations or detail.best is None:
        return Text("not measured on this node: see --eval-every", style="dim")
    last, best = detail.evaluations[-1], detail.best
    line = _curve_line([each.loss for each in detail.evaluations], f"{last.loss:.4f}", is_ascii)
    line.append(f" {100 * last.accuracy:.1f} % right")
    line.append(", the best" if best == last else f", best: step {best.step}", style="dim")
    return line


def _updates(status: Status, detail: StatusDetail) -> Text:
    share = f" ({100 * detail.own_updates / status.updates:.1f} %)" if status.updates else ""
    text = f"{counted(status.updates, 'update')} of {counted(status.authors, 'author')}, {detail.own_updates:,} own"
    lag = f", {counted(detail.lag_steps, 'step')} behind" if detail.lag_steps else ""
    return Text(f"{text}{share}{lag}")


def _equal(status: Status, detail: StatusDetail) -> Text:
    count = len(detail.peers)
    equal = sum(peer.is_equal for peer in detail.peers)
    if not count:
        return Text("no peers" if status.expects_peers else "alone: no other node is known", style="yellow")
    line = Text().append(f"with {equal} of {counted(count, 'peer')}", style="green" if equal == count else "")
    held = [peer.own_updates_min for peer in detail.peers if peer.own_updates_min]
    if held:
        line.append(f"; {min(held):,} or more own updates held by {len(held)} of them", style="dim")
    return line


def _memory(status: Status) -> Text:
    line = Text(describe_memory(status.memory), style="yellow" if status.memory.is_full else "")
    if status.detail is not None and status.detail.processes_bytes:
        line.append(f", worker {status.detail.processes_bytes >> 20} MiB")
    return line


def _speed(detail: StatusDetail) -> Text:
    rates = f"{format_rate(detail.bytes_in_per_s)} in, {format_rate(detail.bytes_out_per_s)} out"
    return Text(f"{detail.rows_per_s:,.0f} forward rows/s, {rates}")


def _peers(detail: StatusDetail, count_max: int, style: str) -> Iterator[RenderableType]:
    if not detail.peers:
        return
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim", style=style)
    for name, justify in _PEER_COLUMNS:
        table.add_column(name, justify=justify, no_wrap=True, overflow="ellipsis")
    for peer in detail.peers[:count_max]:
        table.add_row(*(printable(cell) for cell in _peer_row(peer)))
    yield Text()
    yield table
    if len(detail.peers) > count_max:
        yield Text(f"and {len(detail.peers) - count_max} more", style="dim")


_PEER_COLUMNS: Final[tuple[tuple[str, Literal["left", "right"]], ...]] = (
    ("peer", "left"),
    ("", "left"),
    ("address", "left"),
    ("delay", "right"),
    ("updates", "right"),
    ("equal", "left"),
    ("score", "right"),
)


def _peer_row(peer: PeerState) -> tuple[str, ...]:
    return (
        short_peer(peer.peer),
        "out" if peer.is_outbound else "in",
        peer.address.split("/p2p/")[0],
        "" if peer.rtt_ms is None else f"{peer.rtt_ms:.0f} ms",
        "" if peer.updates is None else f"{peer.updates:,}",
        "yes" if peer.is_equal else "no",
        f"{peer.score:.0f}",
    )


def _news(news: Sequence[News]) -> Iterator[RenderableType]:
    if news:
        yield Text()
    for each in news[-_NEWS_MAX:]:
        when = time.strftime("%H:%M:%S", time.localtime(each.time))
        line = Text(no_wrap=True, overflow="ellipsis").append(f"{when} ", style="dim")
        yield line.append(printable(each.text), style="yellow" if each.is_bad else "")


# --- several nodes


def _table_of(views: Sequence[NodeView]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    for name in ("node", "stage", "loss", "right", "peers", "own", "left"):
        table.add_column(name, no_wrap=True, overflow="ellipsis", max_width=_NAME_COLUMNS if name == "node" else None)
    for view in views:
        table.add_row(*(Text(printable(cell)) for cell in _cells(view)), style="dim" if view.trouble else "")
    return table


def _cells(view: NodeView) -> tuple[str, ...]:
    status = view.status
    if status is None:
        return (view.data_dir.path.name, "not seen", "", "", "", "", "")
    detail = status.detail
    accuracy = f"{100 * detail.evaluations[-1].accuracy:.1f} %" if detail and detail.evaluations else ""
    left = describe_time_left(status).removesuffix(" left")
    stage = "finished" if status.is_finished else describe_stage(status).replace(", the run is at", "")
    return (
        view.data_dir.path.name,
        f"gone at step {status.step}" if view.trouble else stage,
        "" if status.loss is None else f"{status.loss:.3f}",
        accuracy,
        str(status.peers),
        f"{detail.own_updates if detail else status.own_updates:,}",
        left,
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
