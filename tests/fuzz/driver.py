"""Starts the engine for each target, watches it, and reads its figures and findings."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests import REPOSITORY
from tests.fuzz.catalogue import CORPUS, Entry, corpus_files

INPUT_S_MAX: Final = 10  # one input takes milliseconds; a machine under load may take a hundred times longer
MEMORY_MIB_MAX: Final = 1_024  # an engine with libp2p takes 150
START_S_MAX: Final = 120  # imports, and running the corpus once
_EXECUTIONS = re.compile(rb"stat::number_of_executed_units:\s*(\d+)")
_COVERAGE = re.compile(rb"cov: (\d+)")
_TAIL_LINES = 25
MERGED_BYTES_MAX: Final = 8_000  # of what fuzzing found, for each target


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """For all targets together; ``executions`` 0: so many seconds. ``seed`` 0: libFuzzer chooses one."""

    seconds: int
    executions: int
    jobs: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one target did.

    Attributes:
        executions, edges, inputs: runs of the check; edges of the code under test reached; size of the corpus now.
        seconds: wall time with imports.
        finding: None, or what happened with the way to replay it.
    """

    name: str
    executions: int
    edges: int
    inputs: int
    seconds: float
    finding: str | None


def run_all(entries: list[Entry], budget: Budget, *, keep: Path | None, report: Callable[[str], None]) -> list[Outcome]:
    """Run the targets, ``jobs`` at a time; reports a line of the table as each ends."""
    work = Path(tempfile.mkdtemp(prefix="sfnode-fuzz-"))
    shares = sum(entry.share for entry in entries)

    def run(entry: Entry) -> Outcome:
        part = entry.share / shares if budget.executions else 1 / len(entries)
        outcome = _run_target(entry, budget, part, folder=(keep or work) / entry.name)
        report(_line(outcome))
        return outcome

    report(f"{'target':<16} {'executions':>11} {'per s':>8} {'edges':>6} {'corpus':>7}  findings")
    with ThreadPoolExecutor(max_workers=budget.jobs) as pool:
        outcomes = list(pool.map(run, entries))
    if not any(outcome.finding for outcome in outcomes):
        shutil.rmtree(work)
    return outcomes


def _run_target(entry: Entry, budget: Budget, part: float, *, folder: Path) -> Outcome:
    folder.mkdir(parents=True, exist_ok=True)
    findings = folder.parent / "findings" / entry.name
    findings.mkdir(parents=True, exist_ok=True)
    seconds = max(1, round(budget.seconds * part * budget.jobs))
    arguments = [
        f"-max_len={entry.bytes_max}",
        f"-timeout={INPUT_S_MAX}",
        f"-rss_limit_mb={MEMORY_MIB_MAX}",
        f"-artifact_prefix={findings}/",
        f"-seed={budget.seed}",
        "-print_final_stats=1",
        f"-runs={max(1, round(budget.executions * part))}" if budget.executions else f"-max_total_time={seconds}",
        str(folder),
        str(CORPUS / entry.name),
    ]
    old = set(findings.iterdir())
    start_s = time.monotonic()
    engine = subprocess.run(  # it ends by itself: by its runs, its time, or the limits on one input
        [sys.executable, "-m", "tests.fuzz.engine", entry.name, *arguments],
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=None if budget.executions else seconds + START_S_MAX,
        check=False,
    )
    found = _EXECUTIONS.search(engine.stdout)
    saved = sorted(set(findings.iterdir()) - old)
    return Outcome(
        name=entry.name,
        executions=int(found[1]) if found else 0,
        edges=max(map(int, _COVERAGE.findall(engine.stdout)), default=0),
        inputs=len(list(folder.iterdir())),
        seconds=time.monotonic() - start_s,
        finding=None if engine.returncode == 0 and found else _describe(entry, engine, saved),
    )


def merge(entry: Entry, found: Path) -> int:
    """Take those of the inputs in ``found`` into the checked-in corpus that reach more than it; their number.

    The smallest come first, up to MERGED_BYTES_MAX for each target: the repository is no place for a large corpus.
    """
    with tempfile.TemporaryDirectory(prefix="sfnode-fuzz-") as work:
        folders = [work, str(CORPUS / entry.name), str(found / entry.name)]
        subprocess.run(
            [
                sys.executable,
                "-m",
                "tests.fuzz.engine",
                entry.name,
                "-merge=1",
                f"-max_len={entry.bytes_max}",
                *folders,
            ],
            cwd=REPOSITORY,
            capture_output=True,
            check=True,
        )
        held = {path.read_bytes() for path in corpus_files(entry)}
        fresh = sorted((path.read_bytes() for path in Path(work).iterdir()), key=lambda data: (len(data), data))
    left = MERGED_BYTES_MAX - sum(path.stat().st_size for path in corpus_files(entry) if path.name.startswith("found"))
    count = 0
    for data in fresh:
        if data not in held and len(data) <= left:
            name = f"found-{hashlib.sha256(data).hexdigest()[:12]}"
            (CORPUS / entry.name / name).write_bytes(data)
            left -= len(data)
            count += 1
    return count


def _describe(entry: Entry, engine: subprocess.CompletedProcess[bytes], saved: list[Path]) -> str:
    tail = engine.stdout.decode("utf-8", "replace").splitlines()[-_TAIL_LINES:]
    ways = [f"  replay: python -m tests.fuzz --target {entry.name} --input {path}" for path in saved]
    return "\n".join([f"  exit code {engine.returncode}", *(f"  | {line}" for line in tail), *ways])


def _line(outcome: Outcome) -> str:
    per_s = outcome.executions / outcome.seconds
    row = f"{outcome.name:<16} {outcome.executions:>11,} {per_s:>8,.0f} {outcome.edges:>6} {outcome.inputs:>7}"
    return f"{row}  none" if outcome.finding is None else f"{row}  FOUND\n{outcome.finding}"
