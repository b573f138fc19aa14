"""Groups of options: a command gets each group as one dataclass, and what was not given is None."""

from __future__ import annotations

from dataclasses import dataclass

import click
import pytest
from click.testing import CliRunner

from protocol.errors import OperatorError
from protocol.run.method import BasisKind, CoreKind, ScalarKind, ScheduleKind
from sfnode.cli.options import choice_option, group, method_options, number_option
from sfnode.run.builder import BEST, RANK, MethodOptions, method_of, renewable
from sfnode.storage.stored_bases import BasisSpec

BASIS = BasisSpec(rank=8, sha256="ab" * 32, unit_exp=3, entry_max=8)


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


@pytest.mark.parametrize("basis", [None, BASIS])
def test_method__owner_says_nothing__is_what_learns_best_with_the_basis(basis: BasisSpec | None) -> None:
    method, schedule = method_of(MethodOptions(), basis)
    best = BEST[method.basis]
    assert method.basis is (BasisKind.RANDOM if basis is None else BasisKind.PUBLISHED)
    assert (method.core, method.scalar) == (best.core, best.scalar)
    assert method.rank == (RANK if basis is None else basis.rank)
    said = MethodOptions(core=best.core, scalar=best.scalar, learning_rate=best.learning_rate, rank=method.rank)
    assert method_of(said, basis) == (method, schedule)
    assert (schedule.kind, schedule.weight_end) == (ScheduleKind.LINEAR, 0)


def test_method__owner_says_something__is_kept_with_a_basis() -> None:
    method, _ = method_of(MethodOptions(core=CoreKind.CANONICAL, scalar=ScalarKind.RAW), BASIS)
    assert (method.core, method.scalar) == (CoreKind.CANONICAL, ScalarKind.RAW)


def test_method__another_rank_than_the_basis__is_refused_with_both() -> None:
    with pytest.raises(OperatorError, match="--rank 16: the published basis has rank 8"):
        method_of(MethodOptions(rank=16), BASIS)


@pytest.mark.parametrize(
    ("steps", "local_steps", "expected"), [(500, 1, 63), (500, 4, 64), (12, 1, 16), (100_000, 1, 1_024)]
)
def test_renewable__any_length__has_epochs_to_renew_the_run_in(steps: int, local_steps: int, expected: int) -> None:
    """A run of 500 steps had one epoch of 1,024: `sfnode basis renew` found none that was left."""
    assert renewable(MethodOptions(local_steps=local_steps), steps).epoch_steps == expected
