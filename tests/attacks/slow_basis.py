"""A run's basis from nodes that crawl, to somebody who joins."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import trio

from protocol.run.manifest import SignedManifest, TensorKind, TensorSpec, sign_manifest
from tests.attacks.doors import Spent
from tests.attacks.file_givers import givers, has_event, until
from tests.attacks.outcome import A_NEW_NODE, Outcome
from tests.attacks.visitor import pid_of
from tests.support.daemons import demo_run, write_run
from tests.support.dense_runs import RANK, made_up_basis, with_basis
from tests.support.manifests import OWNER
from tests.support.patience import Stopwatch, waits_of, within
from tests.support.running_nodes import Joins

_INPUTS: Final = (1 << 20) // RANK  # a basis of 1 MiB
_OUTPUTS: Final = 16
_SLOW: Final = 2
_BOUND_S: Final = 45.0  # each of them may take 18 s, until its second part says how slow it is
_NEVER_S: Final = 90.0


def slow_basis(_is_short: bool) -> Outcome:
    """The first two of three nodes that a joiner knows give 32 KiB of the run's basis every nine seconds."""
    spent = Spent()
    before_s = trio.run(_basis_s, 0, Spent())
    during_s = trio.run(_basis_s, _SLOW, spent)
    return Outcome(
        before=_in_words(before_s),
        during=_in_words(during_s),
        after=A_NEW_NODE,
        attacker=f"{spent.bytes / 1e3:.0f} kB",
        bound=f"the basis is there in {_BOUND_S:.0f} s",
        is_held=during_s is not None and during_s <= _BOUND_S,
    )


def _run() -> tuple[SignedManifest, bytes]:
    """A run with a wide tensor, and its basis."""
    small, _ = with_basis(demo_run(steps=24).manifest)
    tensor = TensorSpec(name="weight", kind=TensorKind.MATRIX, rows=_OUTPUTS, cols=_INPUTS)
    wide = replace(small, tensors=(tensor,))
    basis = made_up_basis(wide)
    method = replace(wide.method, basis_sha256=hashlib.sha256(basis).hexdigest())
    return sign_manifest(replace(wide, method=method), OWNER), basis


async def _basis_s(slow: int, spent: Spent) -> float | None:
    """After how long a relay that joins has the basis, once it asks for it; None for never."""
    signed, basis = _run()
    files = {hashlib.sha256(basis).hexdigest(): basis}
    with TemporaryDirectory(prefix="sfnode-") as name, Joins(Path(name)) as joins:
        write_run(signed, run_file := Path(name, "test.run"))
        async with givers(signed.manifest.run_id, files, slow=slow, spent=spent) as addresses:
            given = [part for address in addresses for part in ("--bootstrap", address)]
            node = joins("relay", "--run", run_file, "--relay", "--neighbours-fixed", *given)
            await within(_NEVER_S, partial(until, has_event(node, "fetching_basis")))
            stopwatch = Stopwatch(partial(waits_of, (pid_of(node),)))
            try:
                await within(_NEVER_S, partial(until, has_event(node, "basis_fetched")))
            except trio.TooSlowError:
                return None
            return stopwatch.seconds()


def _in_words(seconds: float | None) -> str:
    return f"not in {_NEVER_S:.0f} s" if seconds is None else f"1 MiB in {seconds:.1f} s"
