"""Learning rates as the manifest's integers: each allowed rate is met, and leaves the products exact."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from protocol.run import CoreKind, ScalarKind, ScheduleKind
from protocol.run.manifest import checked
from protocol.schema import to_plain
from sfnode.run import MethodOptions, manifest_builder
from sfnode.storage import DenseSettings
from tests.support.manifests import small_manifest

_JUST_BELOW = (0.001953, *(2.0**-bits * (1 - 2.0**-12) for bits in range(1, 29, 3)))


@pytest.mark.parametrize("rate", [*_JUST_BELOW, 2.0**-9, 0.0019, 1.0, 1e-9])
@pytest.mark.parametrize("core", CoreKind)
def test_learning_rate__just_below_a_power_of_two__is_met_and_leaves_room_for_long_runs(
    rate: float, core: CoreKind
) -> None:
    """0.001953 became a weight of eleven bits, and runs of 1,024 steps or more were not valid."""
    if core is CoreKind.DENSE:
        plain = small_manifest(core="dense")
        dense = DenseSettings(core_rows=2, rank=4, quantum_exp=-9, energy_max=1, clip=127, noise_rows=128)
        method, schedule = manifest_builder.dense_method_of(
            ScheduleKind.LINEAR, rate, "ab" * 32, dense, plain.task.batch_rows
        )
        directions = 1  # a message is the mean gradient of all its rows
    else:
        plain = small_manifest()
        method, schedule = manifest_builder.method_of(MethodOptions(core=core, learning_rate=rate, epoch_steps=1_024))
        directions = method.directions
    manifest = replace(plain, method=method, schedule=schedule, steps=2_048, authors_max=1_024)
    assert checked(to_plain(manifest, as_rows=False)) == manifest
    met = 2.0**method.alpha_exp * schedule.weight_start * directions / 2.0**method.quantum_exp
    assert met == pytest.approx(rate, rel=0.001)
    assert schedule.weight_start.bit_length() <= 10


def test_learning_rate__rounded_up_to_a_power_of_two__is_the_same_for_every_kind_of_method() -> None:
    for core, scalar, directions, schedule in product(CoreKind, ScalarKind, (1, 2, 4, 8, 16), ScheduleKind):
        options = MethodOptions(core=core, scalar=scalar, directions=directions, learning_rate=0.001953)
        method, found = manifest_builder.method_of(replace(options, schedule=schedule))
        assert found.weight_start < 1 << 10 and method.alpha_exp < 0
