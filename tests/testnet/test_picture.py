"""The picture is well-formed SVG that shows what was measured, for any set of points."""

from __future__ import annotations

import math
from dataclasses import replace
from xml.etree import ElementTree

from hypothesis import given, strategies as st

from sfnode.testnet.picture import CurvePoint, render_training_curve

SVG = "{http://www.w3.org/2000/svg}"
POINTS = tuple(
    CurvePoint(step=step, loss=0.7 - step / 500, accuracy=0.5 + step / 250 if step % 20 == 0 else None)
    for step in range(101)
)


def _texts(svg: str) -> list[str]:
    return ["".join(node.itertext()) for node in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def _lines(svg: str) -> list[list[tuple[float, float]]]:
    """Pixel coordinates of each line: accuracy, loss, smoothed loss."""
    found = ElementTree.fromstring(svg).iter(f"{SVG}polyline")
    pairs = ([pair.split(",") for pair in node.attrib["points"].split()] for node in found)
    return [[(float(x), float(y)) for x, y in line] for line in pairs]


def test_picture__a_run__shows_title_start_and_end() -> None:
    texts = _texts(render_training_curve(POINTS, "four nodes <one> model & data"))
    assert "four nodes <one> model & data" in texts
    assert {"50.0 %", "90.0 %", "0.698", "0.502", "step"} <= set(texts)


def test_picture__a_run__draws_every_measurement() -> None:
    accuracy, loss, smooth = _lines(render_training_curve(POINTS, "run"))
    assert (len(accuracy), len(loss), len(smooth)) == (6, 101, 101)
    assert [y for _, y in accuracy] == sorted((y for _, y in accuracy), reverse=True)
    assert [y for _, y in loss] == sorted(y for _, y in loss)


def test_picture__points_in_another_order__are_the_same_bytes() -> None:
    assert render_training_curve(POINTS[::-1], "run") == render_training_curve(POINTS, "run")


def test_picture__no_points__says_not_measured() -> None:
    assert _texts(render_training_curve((), "run")).count("not measured") == 2


measurement = st.none() | st.floats(allow_nan=True, allow_infinity=True, min_value=None, max_value=None, width=32)
points = st.builds(
    CurvePoint, step=st.integers(0, 10**6), loss=measurement, accuracy=st.none() | st.floats(0, 1) | st.just(math.nan)
)


@given(st.lists(points, max_size=20))
def test_picture__any_values__stay_inside_the_frame(some: list[CurvePoint]) -> None:
    for line in _lines(render_training_curve(some, "run")):
        assert all(0 <= x <= 960 and 0 <= y <= 620 for x, y in line)


def test_picture__rewards__are_drawn_in_the_place_of_accuracy_and_loss() -> None:
    points = [
        CurvePoint(step=step, loss=0.9 - step / 200, accuracy=0.0, reward=0.1 + step / 200, held_out_reward=step / 100)
        for step in range(0, 101, 10)
    ]
    texts = _texts(render_training_curve(points, "run"))
    assert {"0.00", "1.00", "0.10", "0.60"} <= set(texts)
    assert any(text.startswith("Mean reward on held-out data") for text in texts)
    assert any(text.startswith("Mean reward in training") for text in texts)
    named = [replace(point, reward=None, chance=point.reward) for point in points]
    other = [text.replace("Mean reward in training", "Chance of a right token in training") for text in texts]
    assert _texts(render_training_curve(named, "run")) == other != texts
    held_out, sampled, _ = _lines(render_training_curve(points, "run"))
    assert all(line[0][1] > line[-1][1] for line in (held_out, sampled))  # both rise
