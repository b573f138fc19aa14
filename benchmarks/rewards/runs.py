"""Runs on disk, one file each: what was computed once is not computed again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from benchmarks.rewards.looks import Course

_DIGEST_LETTERS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A course, and of what.

    Attributes:
        settings: everything else that the course depends on, but for the program.
    """

    model: str
    task: str
    method: str
    seed: int
    settings: Mapping[str, object]
    course: Course

    @property
    def subject(self) -> tuple[str, str, str, int]:
        """What the run is of."""
        return self.model, self.task, self.method, self.seed


def kept_or_run(folder: Path, subject: Mapping[str, object], measure: Callable[[], Course]) -> Run:
    """The run of ``subject``, which has the other fields of `Run`; measured where it is not in ``folder``."""
    digest = sha256(json.dumps(subject, sort_keys=True).encode()).hexdigest()[:_DIGEST_LETTERS]
    path = folder / f"{subject['task']}-{subject['method']}-{subject['seed']}-{digest}.json"
    if not path.exists():
        course = asdict(measure())
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part")
        unfinished.write_text(json.dumps({**subject, "course": course}, indent=1) + "\n", "utf-8")
        unfinished.replace(path)
    return run_of(json.loads(path.read_text("utf-8")))


def run_of(plain: Mapping[str, object]) -> Run:
    """A run from what `asdict` makes of it."""
    fields = {**plain, "course": Course(**plain["course"])}  # type: ignore[arg-type]
    return Run(**fields)  # type: ignore[arg-type]


def merged_runs(old: Iterable[Run], new: Iterable[Run]) -> list[Run]:
    """The runs of both; of the same subject, the new one."""
    return [*{run.subject: run for run in (*old, *new)}.values()]
