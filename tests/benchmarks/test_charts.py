"""Line charts: what a reader sees of them."""

from __future__ import annotations

import re

from benchmarks.charts import MARKS, PALETTE, Axis, Chart, Line, render_chart


def _drawn(*lines: Line) -> str:
    axis = Axis(name="%", is_log=False)
    return render_chart(Chart(title="any", note="any", x=axis, y=axis, lines=lines))


def test_chart__twelve_lines__have_twelve_colours_and_marks() -> None:
    """Four methods of the paper's picture had one grey."""
    assert len(set(PALETTE)) == len(set(MARKS)) == 12
    drawn = _drawn(*(Line(name=f"method {n}", points=((0.0, n), (1.0, n + 1.0))) for n in range(12)))
    assert all(drawn.count(colour) >= 2 for colour in PALETTE)


def test_chart__values_far_from_zero__fill_the_picture() -> None:
    """Accuracies between 50 and 75 % were drawn on an axis from 0 on."""
    labels = re.findall(r">([0-9]+)</text>", _drawn(Line(name="a", points=((50.0, 50.0), (60.0, 75.0)))))
    assert labels and all(48 <= int(label) <= 76 for label in labels)


def test_chart__lines_that_end_together__have_names_that_do_not_cover_each_other() -> None:
    drawn = _drawn(*(Line(name=f"method {n}", points=((0.0, n), (1.0, 5.0))) for n in range(4)))
    places = [float(y) for y in re.findall(r'y="([0-9.]+)"[^>]*>method', drawn)]
    places = places or [float(y) for y in re.findall(r"translate\([0-9.]+ ([0-9.]+)\)[^>]*>method", drawn)]
    gaps = [b - a for a, b in zip(sorted(places), sorted(places)[1:], strict=False)]
    assert len(places) == 4 and min(gaps) > 9  # points; a letter is 7 high


def test_chart__same_chart__same_bytes() -> None:
    line = Line(name="a", points=((1.0, 1.0), (2.0, 3.0)))
    assert _drawn(line) == _drawn(line)
