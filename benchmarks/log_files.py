"""Peak memory and time of the commands that go through a whole run: `sfnode log export`, `import`, `verify`, `show`.

    python -m benchmarks.log_files --updates 300000 --json

Each command is a process of its own. `sfnode audit` chooses its messages by the same means.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import click

from benchmarks.measures import report, say
from benchmarks.sample_runs import OWNER, Shape, manifest_of, sealed_records, tiny_tensors
from protocol.run import sign_manifest
from sfnode.storage import DataDirectory, Store

_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandCost:
    """One command's largest memory, its time, and its time on the CPU."""

    peak_mib: float
    seconds: float
    cpu_s: float


def measure(shape: Shape) -> dict[str, CommandCost]:
    """Each command, on the data directory of a node that has stopped."""
    with tempfile.TemporaryDirectory() as folder:
        node, file, half = (Path(folder) / name for name in ("node", "run.log", "half"))
        say(f"signing {shape.updates:,} updates")
        _fill(node, shape, shape.updates)
        _fill(half, shape, shape.updates // 2)
        commands = {
            "import of nothing (--help)": ("log", "import", "--help"),
            "log export": ("log", "export", file, "--data-dir", node),
            "log import, new directory": ("log", "import", file, "--data-dir", Path(folder) / "copy"),
            "log import, half is there": ("log", "import", file, "--data-dir", half),
            "log verify": ("log", "verify", node),
            "log show": ("log", "show", node),
        }
        return {name: _run(*arguments) for name, arguments in commands.items()}


def _fill(directory: Path, shape: Shape, count: int) -> None:
    manifest = manifest_of(shape, tiny_tensors())
    data_dir = DataDirectory(directory)
    store = Store(data_dir, sign_manifest(manifest, OWNER))
    records = islice(sealed_records(manifest, shape), count)
    while piece := list(islice(records, _AT_ONCE)):
        store.add(piece, is_durable=False)
    store.close()
    data_dir.identity.made_seed()


def _run(*arguments: object) -> CommandCost:
    say(" ".join(map(str, arguments)))
    command = [sys.executable, "-m", "sfnode", *map(str, arguments)]
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, code, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(code)
    if process.returncode:
        raise RuntimeError(f"exit code {process.returncode}: {' '.join(command)}")
    seconds = time.monotonic() - started
    cpu_s = usage.ru_utime + usage.ru_stime
    return CommandCost(peak_mib=round(usage.ru_maxrss / 1_024, 1), seconds=round(seconds, 1), cpu_s=round(cpu_s, 1))


@click.command()
@click.option("--updates", default=300_000, show_default=True)
@click.option("--authors", default=64, show_default=True, help="They share the updates.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def main(updates: int, authors: int, as_json: bool) -> None:
    """What the commands on whole runs take."""
    result = measure(Shape(authors=authors, steps=max(1, updates // authors)))
    report(result, as_json=as_json, lines=[f"{name:28} {asdict(cost)}" for name, cost in result.items()])


if __name__ == "__main__":
    main()
