"""Learning rates as the manifest's integers: each allowed rate is met, and leaves the products exact."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from protocol.run import BasisKind, CoreKind, ScalarKind, ScheduleKind
from protocol.run.manifest import checked
from protocol.schema import to_plain
from sfnode.run import MethodOptions, builder
from sfnode.storage import BasisSpec
from tests.support.manifests import small_manifest

_PUBLISHED = BasisSpec(rank=1, sha256="ee" * 32, unit_exp=3, entry_max=31)
_JUST_BELOW = (0.001953, *(2.0**-bits * (1 - 2.0**-12) for bits in range(1, 29, 3)))


@pytest.mark.parametrize("rate", [*_JUST_BELOW, 2.0**-9, 0.0019, 1.0, 1e-9])
@pytest.mark.parametrize("basis", [None, _PUBLISHED], ids=["random", "published"])
def test_learning_rate__just_below_a_power_of_two__is_met_and_leaves_room_for_long_runs(
    rate: float, basis: BasisSpec | None
) -> None:
    """0.001953 became a weight of eleven bits, and runs of 1,024 steps or more were not valid."""
    given = MethodOptions(learning_rate=rate, epoch_steps=1_024)
    method, schedule = builder.method_of(given, basis)
    manifest = replace(small_manifest(), method=method, schedule=schedule, steps=2_048, authors_max=1_024)
    assert checked(to_plain(manifest, as_rows=False)) == manifest
    per_unit = 2.0**method.quantum_exp if method.scalar is ScalarKind.RAW else 1 / 32
    met = 2.0**method.alpha_exp * schedule.weight_start * method.directions / per_unit
    assert met == pytest.approx(rate, rel=0.07 if basis else 0.001)
    assert schedule.weight_start.bit_length() <= 10


def test_learning_rate__rounded_up_to_a_power_of_two__is_the_same_for_every_kind_of_method() -> None:
    for core, scalar, directions, schedule in product(CoreKind, ScalarKind, (1, 2, 4, 8, 16), ScheduleKind):
        options = MethodOptions(core=core, scalar=scalar, directions=directions, learning_rate=0.001953)
        method, found = builder.method_of(replace(options, schedule=schedule))
        assert method.basis is BasisKind.RANDOM
        assert found.weight_start < 1 << 10 and method.alpha_exp < 0
