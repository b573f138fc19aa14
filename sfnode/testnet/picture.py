"""Draw the picture of a run: held-out accuracy and training loss over steps, or mean rewards, as one SVG file.

Written by hand, so that it needs no plotting library; any browser shows it. The same points give the same bytes. Two
panels share the step axis instead of one panel with two scales, because where two scales cross means nothing.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sfnode import svg

WIDTH = 960
HEIGHT = 620
LEFT = 84
RIGHT = 900
ACCURACY_ROWS = (112.0, 344.0)  # top and bottom of the upper panel
LOSS_ROWS = (416.0, 556.0)
ACCURACY_COLOUR = svg.TEAL
LOSS_COLOUR = svg.ORANGE
SMOOTHING_SHARE = 20  # the bold loss line is a mean over about a twentieth of the run
STYLE = (
    svg.LETTERING
    # The halo keeps values readable on a line.
    + ".halo{stroke:#ffffff;stroke-width:4px;stroke-linejoin:round;paint-order:stroke}"
    "polyline{fill:none;stroke-linejoin:round;stroke-linecap:round}"
)

Line = tuple[tuple[int, float], ...]
Label = Callable[[float], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """Holds the measurements at one step.

    Attributes:
        step: step of the run; 0 is before the first update.
        loss: mean training loss in nats; None when not measured.
        accuracy: share of correct held-out answers, 0 to 1; None when not measured.
        reward: mean reward of the answers that were sampled in training; None where the run has none.
        chance: how likely a token of the right answers was that rows name; None where they name none.
        held_out_reward: mean reward of the likeliest answers to held-out prompts; None when not measured.

    Values that are not finite are left out of the picture.
    """

    step: int
    loss: float | None
    accuracy: float | None
    reward: float | None = None
    chance: float | None = None
    held_out_reward: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Maps steps and values to pixels: its top and bottom, the steps and values at its edges, and the line's colour."""

    rows: tuple[float, float]
    steps: tuple[int, int]
    values: tuple[float, float]
    colour: str

    def x(self, step: float) -> float:
        first, last = self.steps
        return LEFT + (RIGHT - LEFT) * (step - first) / (last - first)

    def y(self, value: float) -> float:
        (top, bottom), (low, high) = self.rows, self.values
        return bottom - (bottom - top) * (value - low) / (high - low)


def render_training_curve(points: Sequence[CurvePoint], title: str) -> str:
    """Return the picture of a run as SVG text; points may come in any order."""
    has_chances = any(point.chance is not None for point in points)
    is_rewarded = has_chances or any({point.reward, point.held_out_reward} != {None} for point in points)
    accuracy = _line((point.step, point.held_out_reward if is_rewarded else point.accuracy) for point in points)
    training = [point.chance if has_chances else point.reward if is_rewarded else point.loss for point in points]
    loss = _line((point.step, value) for point, value in zip(points, training, strict=True))
    measured = [step for step, _ in (*accuracy, *loss)] or [0]
    steps = (min(measured), max(*measured, min(measured) + 1))
    names = (("Accuracy on held-out data", "share of correct answers, %"), ("Training loss", "nats per answer"))
    percent: tuple[Label, Label] = (lambda value: f"{100 * value:.0f}", lambda value: f"{100 * value:.1f} %")
    labels = (percent, ("{:.10g}".format, "{:.3f}".format))
    if is_rewarded:
        names = (
            ("Mean reward on held-out data", "of the likeliest answers, 0 to 1"),
            ("Chance of a right token in training" if has_chances else "Mean reward in training", "0 to 1"),
        )
        labels = (("{:.1f}".format, "{:.2f}".format), ("{:.10g}".format, "{:.2f}".format))
    # The centred mean over `window` neighbours, fewer near the ends
    window = max(1, len(loss) // SMOOTHING_SHARE)
    before, after = (window - 1) // 2, window // 2
    near = [[value for _, value in loss[max(0, at - before) : at + after + 1]] for at in range(len(loss))]
    smooth = tuple((step, sum(values) / len(values)) for (step, _), values in zip(loss, near, strict=True))
    heading, unit = names[1]
    unit += f"; bold: mean of {window} steps" if window > 1 else ""
    lowest = min((value for _, value in accuracy), default=0.5)
    upper = Panel(rows=ACCURACY_ROWS, steps=steps, values=(0.4 if lowest >= 0.42 else 0.0, 1.0), colour=ACCURACY_COLOUR)
    lower = Panel(rows=LOSS_ROWS, steps=steps, values=_range_of(loss), colour=LOSS_COLOUR)
    dots = accuracy if len(accuracy) <= 60 else ()
    parts = [
        *svg.opened(WIDTH, HEIGHT, title, STYLE),
        svg.text((LEFT, 44), title, fill=svg.INK, css="title"),
        *_drawn(upper, names[0], labels[0], accuracy),
        *(svg.dot((upper.x(step), upper.y(value)), ACCURACY_COLOUR) for step, value in dots),
        *_drawn(lower, (heading, unit), labels[1], smooth, thin=loss),
        *_step_axis(lower),
        svg.CLOSED,
    ]
    return "\n".join(parts) + "\n"


def _drawn(
    panel: Panel, name_and_unit: tuple[str, str], labels: tuple[Label, Label], line: Line, thin: Line = ()
) -> list[str]:
    """Return a panel's heading, grid and lines; ``labels``: of the grid, and of the first and the last value."""
    name, unit = name_and_unit
    spans = (
        f'<tspan class="strong" fill="{panel.colour}">{name}</tspan><tspan dx="10" fill="{svg.MUTED}">{unit}</tspan>'
    )
    top, bottom = panel.rows
    parts = [f'<text x="{LEFT}" y="{top - 18:.1f}">{spans}</text>']
    for value in _ticks(*panel.values, 5 if panel.rows is ACCURACY_ROWS else 4):
        parts.append(svg.level(LEFT, RIGHT, panel.y(value), svg.GRID))
        parts.append(svg.text((LEFT - 10, panel.y(value) + 4.5), labels[0](value), anchor="end"))
    for each, stroke in ((thin, 'stroke-width="1" stroke-opacity="0.35"'), (line, 'stroke-width="2.5"')):
        if each:
            places = [(panel.x(step), panel.y(value)) for step, value in each]
            parts.append(svg.polyline(places, f'stroke="{panel.colour}" {stroke}'))
    ends = dict.fromkeys((*line[:1], *line[-1:]))  # above the line or, near the top, below it
    for (step, value), anchor in zip(ends, ("start", "end"), strict=False):
        at = panel.x(step), panel.y(value) + (23 if panel.y(value) < top + 24 else -11)
        parts.append(svg.text(at, labels[1](value), fill=panel.colour, css="strong halo", anchor=anchor))
    if not line:
        parts.append(svg.text(((LEFT + RIGHT) / 2, (top + bottom) / 2), "not measured", anchor="middle"))
    return parts


def _line(pairs: Iterable[tuple[int, float | None]]) -> Line:
    """Return the finite values in order of steps."""
    finite = ((step, value) for step, value in pairs if value is not None and math.isfinite(value))
    return tuple(sorted(finite))


def _range_of(line: Line) -> tuple[float, float]:
    """Return a range a little wider than the values, of positive width; it stays at 0 or above if they do."""
    values = [value for _, value in line] or [0.0, 1.0]
    low, high = min(values), max(values)
    margin = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
    return (max(0.0, low - margin) if low >= 0 else low - margin), high + margin


def _ticks(low: float, high: float, count: int) -> list[float]:
    """Return about `count` round values (1, 2 or 5 times a power of ten apart) within low...high."""
    rough = (high - low) / count
    power: float = 10.0 ** math.floor(math.log10(rough))
    gap = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    # The tolerance keeps a value at the edge in spite of rounding.
    return [index * gap for index in range(math.ceil(low / gap - 1e-9), math.floor(high / gap + 1e-9) + 1)]


def _step_axis(panel: Panel) -> list[str]:
    bottom = panel.rows[1]
    parts = [svg.level(LEFT, RIGHT, bottom, svg.MUTED)]
    for step in _ticks(*panel.steps, 8):
        if step == int(step):
            parts.append(svg.tick((panel.x(step), bottom), svg.MUTED))
            parts.append(svg.text((panel.x(step), bottom + 21), f"{step:.0f}", anchor="middle"))
    return [*parts, svg.text(((LEFT + RIGHT) / 2, bottom + 44), "step", anchor="middle")]
