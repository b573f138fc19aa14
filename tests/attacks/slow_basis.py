"""A renewed basis from neighbours that crawl."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import trio

from protocol.ledger.statements import StatementCodec
from protocol.run.manifest import SignedManifest, TensorKind, TensorSpec, checked, sign_manifest
from protocol.schema import to_plain
from sfnode.storage.data_directory import DataDirectory
from tests.attacks.doors import Spent
from tests.attacks.file_givers import givers, has_event, until
from tests.attacks.outcome import A_NEW_NODE, Outcome
from tests.attacks.visitor import pid_of
from tests.support.daemons import write_run
from tests.support.manifests import OWNER
from tests.support.patience import Stopwatch, waits_of, within
from tests.support.published_runs import RANK, basis_for, published_demo_run
from tests.support.running_nodes import Joins

_ROWS: Final = 1 << 16  # with as many columns, and a rank of 8: a basis of 1 MiB
_SLOW: Final = 7
_BOUND_S: Final = 15.0
_NEVER_S: Final = 60.0


def slow_basis(_is_short: bool) -> Outcome:
    """Seven of eight neighbours give 32 KiB of a renewed basis every nine seconds."""
    spent = Spent()
    before_s = trio.run(_renewal_s, 0, Spent())
    during_s = trio.run(_renewal_s, _SLOW, spent)
    return Outcome(
        before=_in_words(before_s),
        during=_in_words(during_s),
        after=A_NEW_NODE,
        attacker=f"{spent.bytes / 1e3:.0f} kB",
        bound=f"the basis is there in {_BOUND_S:.0f} s",
        is_held=during_s is not None and during_s <= _BOUND_S,
    )


def _run() -> tuple[SignedManifest, bytes, bytes]:
    """A run, the basis that its manifest names, and another one."""
    demo, _ = published_demo_run(steps=24, epoch_steps=8)
    tensor = TensorSpec(name="weight", kind=TensorKind.MATRIX, rows=_ROWS, cols=_ROWS - RANK)
    plain = to_plain(demo.manifest, as_rows=False)
    plain = {**plain, "tensors": [to_plain(tensor, as_rows=False)]}
    first = basis_for(checked(plain))
    plain["method"] = {**plain["method"], "basis_sha256": hashlib.sha256(first).hexdigest()}
    signed = sign_manifest(checked(plain), OWNER)
    return signed, first, basis_for(signed.manifest, 8)


async def _renewal_s(slow: int, spent: Spent) -> float | None:
    """After how long a relay has the basis that the owner has just renewed; None for never."""
    signed, first, second = _run()
    sha256 = hashlib.sha256(second).hexdigest()
    statement = StatementCodec(signed.manifest).renew(OWNER, 1, sha256)
    with TemporaryDirectory(prefix="sfnode-") as name, Joins(Path(name)) as joins:
        folder = Path(name)
        write_run(signed, folder / "test.run")
        (folder / "first.basis").write_bytes(first)
        async with givers(signed.manifest.run_id, {sha256: second}, slow=slow, spent=spent) as addresses:
            given = [part for address in addresses for part in ("--bootstrap", address)]
            files = ("--run", folder / "test.run", "--basis", folder / "first.basis")
            node = joins("relay", *files, "--relay", "--neighbours-fixed", *given)
            await within(_NEVER_S, partial(until, lambda: node.status().get("peers") == len(addresses)))
            stopwatch = Stopwatch(partial(waits_of, (pid_of(node),)))
            DataDirectory(node.directory).statements.submit([statement])
            try:
                await within(_NEVER_S, partial(until, has_event(node, "basis_fetched")))
            except trio.TooSlowError:
                return None
            return stopwatch.seconds()


def _in_words(seconds: float | None) -> str:
    return f"not in {_NEVER_S:.0f} s" if seconds is None else f"1 MiB in {seconds:.1f} s"
