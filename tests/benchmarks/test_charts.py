"""Line charts: what a reader sees of them."""

from __future__ import annotations

from xml.etree import ElementTree

from benchmarks.charts import RIGHT, Axis, Chart, Line, render_chart


def _width(name: str) -> int:
    axis = Axis(name="%", is_log=False)
    line = Line(name=name, points=((0.0, 1.0), (1.0, 2.0)), colour="#000000")
    chart = Chart(title="any", note="any", x=axis, y=axis, lines=(line,))
    return int(ElementTree.fromstring(render_chart(chart)).attrib["width"])


def test_chart__line_with_a_long_name__is_as_wide_as_the_name_needs() -> None:
    """'64 clients, a quarter of the rate' ended at the edge after a quarter."""
    assert _width("16 clients") == 960
    assert _width("64 clients, a quarter of the rate") > RIGHT + 14 + 7 * 33
