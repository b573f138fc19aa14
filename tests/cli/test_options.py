"""Groups of options: a command gets each group as one dataclass, and what was not given is None."""

from __future__ import annotations

from dataclasses import dataclass

import click
from click.testing import CliRunner

from protocol.run.method import CoreKind, ScalarKind, ScheduleKind
from sfnode.cli.options import choice_option, group, method_options, number_option
from sfnode.run.manifest_builder import LEARNING_RATE, RANK, MethodOptions, method_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    rows: int
    core: CoreKind | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    inner: Inner
    steps: int


def seen_by(*arguments: str) -> list[object]:
    """What a command with a group in a group, and an option of its own, is called with."""
    seen: list[object] = []
    inner = group("inner", Inner, number_option("--rows", 2, "Rows."), choice_option("--core", CoreKind, "Core."))

    @click.command()
    @group("outer", Outer, inner, number_option("--steps", 3, "Steps."))
    @click.option("--name")
    def command(outer: Outer, name: str | None) -> None:
        seen.extend((outer, name))

    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return seen


def test_group__nothing_given__has_the_defaults_and_none() -> None:
    assert seen_by() == [Outer(inner=Inner(rows=2, core=None), steps=3), None]


def test_group__group_in_a_group__is_a_field_of_it() -> None:
    seen = seen_by("--core", "canonical", "--steps", "4", "--rows", "5", "--name", "x")
    assert seen == [Outer(inner=Inner(rows=5, core=CoreKind.CANONICAL), steps=4), "x"]


def test_method_options__nothing_given__are_those_of_the_dataclass() -> None:
    seen: list[MethodOptions] = []

    @click.command()
    @method_options
    def command(method: MethodOptions) -> None:
        seen.append(method)

    CliRunner().invoke(command, [], catch_exceptions=False)
    assert seen == [MethodOptions()]


def test_method__owner_says_nothing__is_what_learns_best() -> None:
    method, schedule = method_of(MethodOptions())
    assert (method.core, method.scalar, method.rank) == (CoreKind.CANONICAL, ScalarKind.RAW, RANK)
    said = MethodOptions(core=method.core, scalar=method.scalar, learning_rate=LEARNING_RATE, rank=RANK)
    assert method_of(said) == (method, schedule)
    assert (schedule.kind, schedule.weight_end) == (ScheduleKind.LINEAR, 0)


def test_method__owner_says_something__is_kept() -> None:
    method, _ = method_of(MethodOptions(core=CoreKind.RADEMACHER, scalar=ScalarKind.NORMALISED, rank=16))
    assert (method.core, method.scalar, method.rank) == (CoreKind.RADEMACHER, ScalarKind.NORMALISED, 16)
