"""Amounts as people type them: times, sizes, rates, names of programs."""

from __future__ import annotations

import pytest

from protocol.errors import OperatorError
from sfnode.run.amounts import parse_program, parse_rate, parse_size, parse_time


@pytest.mark.parametrize(("text", "seconds"), [("4h", 14_400), ("90 min", 5_400), ("1.5d", 129_600)])
def test_parse_time__time__is_seconds(text: str, seconds: int) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize("text", ["", "4", "h", "0h", "-1h", "4 weeks", "9999999h"])
def test_parse_time__no_time__is_refused_with_an_example(text: str) -> None:
    with pytest.raises(OperatorError, match="4h, 90min or 2d"):
        parse_time(text)


@pytest.mark.parametrize("text", ["", " ", "/usr/bin/blender", "a\nb", "x" * 200])
def test_parse_program__no_name__is_refused_with_an_example(text: str) -> None:
    with pytest.raises(OperatorError, match="blender or steam"):
        parse_program(text)


@pytest.mark.parametrize(("text", "size"), [("1.5GB", 1_500_000_000), ("800 MiB", 800 << 20), ("2gb", 2_000_000_000)])
def test_parse_size__size__is_bytes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(("text", "rate"), [("500kB/s", 500_000), ("4 Mbit/s", 500_000), ("1MiB/s", 1 << 20)])
def test_parse_rate__rate__is_bytes_a_second(text: str, rate: int) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "GB", "1", "-1GB", "0MB", "1TB/s", "fast", "9" * 310 + "GB"])
def test_parse_size__no_size__is_refused_with_an_example(text: str) -> None:
    with pytest.raises(OperatorError, match=r"1\.5GB"):
        parse_size(text)


_NO_RATES = [
    ("500", "500kB/s"),
    ("500kB", "500kB/s"),
    ("9" * 310 + "kB/s", "500kB/s"),  # more than a float holds
    ("1kB/s", "16 kB/s or more"),
]


@pytest.mark.parametrize(("text", "advice"), _NO_RATES)
def test_parse_rate__no_rate_or_too_little__is_refused(text: str, advice: str) -> None:
    with pytest.raises(OperatorError, match=advice):
        parse_rate(text)
