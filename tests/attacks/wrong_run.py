"""A node at the address that a joiner was given serves another run's manifest, and says that it is the right one."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from protocol.run.manifest import SignedManifest, sign_manifest
from sfnode.children.child_program import Program
from tests.attacks.outcome import Outcome
from tests.support.daemons import JoinProcess, write_run
from tests.support.fork_server import start_child
from tests.support.manifests import OWNER, small_manifest
from tests.support.network_nodes import LOOPBACK, liar, start

_JOINED_S = 30.0


def wrong_run(is_short: bool) -> Outcome:
    """Answer a joiner with another run's manifest: whoever sits at the address decides what is trained."""
    wanted, other = (sign_manifest(small_manifest(steps=steps), OWNER) for steps in (40, 41))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_run(wanted, folder / "wanted.run")
        arguments = ["--run", str(folder / "wanted.run"), "--relay", "--listen", str(LOOPBACK)]
        owner = JoinProcess(directory=folder / "owner", arguments=arguments)
        owner.start()
        try:
            printed = str(owner.wait_for_event("started").get("join", ""))
            with _liar(wanted, other, folder) as (address, told_bytes):
                before = _join(folder / "plain", "--bootstrap", address)
                during = _join(folder / "liar", f"sfnode:{wanted.manifest.run_id.hex()}@{address}")
            after = _join(folder / "honest", printed)
        finally:
            owner.kill()
    right, wrong = (f"run {signed.manifest.run_id.hex()[:16]}" for signed in (wanted, other))
    return Outcome(
        before=f"--bootstrap: {_named(before, right, wrong)}",
        during=f"sfnode:RUN@...: {_named(during, right, wrong)}",
        after=f"the string that the owner's node prints: {_named(after, right, wrong)}",
        attacker=f"a manifest of {told_bytes:,} bytes, and a hello that names the right run",
        bound="an address that names a run leads to that run or to none",
        is_held=f"serves {wrong}, not" in during and after == f"joined {right}",
    )


def _named(text: str, right: str, wrong: str) -> str:
    return text.replace(right, "the run that was meant").replace(wrong, "another run")


def _join(directory: Path, *arguments: str) -> str:
    """What a relay that is started like this does: "joined run ..." or its last words."""
    node = JoinProcess(directory=directory, arguments=[*arguments, "--relay"])
    node.start()
    try:
        return f"joined run {str(node.wait_for_event('started', _JOINED_S)['run_id'])[:16]}"
    except AssertionError:
        return re.sub(r"/ip4/\S+", "ADDRESS", node.last_words())
    finally:
        node.kill()


@contextmanager
def _liar(wanted: SignedManifest, other: SignedManifest, folder: Path) -> Iterator[tuple[str, int]]:
    """A node of the wrong run in a process of its own: its address, and the length of its manifest."""
    path = folder / "other.run"
    write_run(other, path)
    attacker = Program(module="tests.attacks.wrong_run", arguments=(wanted.manifest.run_id.hex(), str(path)))
    with start_child(attacker, stderr=2) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().decode().strip(), path.stat().st_size
        finally:
            process.kill()


async def _lie(run_id: bytes, manifest: bytes) -> None:
    async with trio.open_nursery() as nursery:
        node = await start(nursery, liar(1, run_id, manifest))
        sys.stdout.write(f"{node.addresses[0]}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    trio.run(_lie, bytes.fromhex(sys.argv[1]), Path(sys.argv[2]).read_bytes())
