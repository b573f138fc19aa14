"""The driver: gives every target its part of a budget, each in a process of its own, and says what came of it."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

from tests.fuzz.catalogue import BY_NAME, CORPUS, ENTRIES, Entry, bounded, corpus_files, load
from tests.fuzz.driver import Budget, Outcome, merge, run_all

CORPUS_BYTES_MAX = 300_000
WITHOUT_ATHERIS = (
    "fuzz: atheris is not installed: it has packages for Linux on x86-64 and Python 3.11 to 3.13 only. Elsewhere run "
    "the checked-in inputs: pytest tests/fuzz/test_corpus.py"
)


def main() -> int:
    """0: no finding. 1: findings. 2: wrong arguments, or atheris is missing."""
    options = _arguments()
    entries = [BY_NAME[name] for name in options.target or BY_NAME]
    if options.input:
        return _replay(entries, options.input)
    if options.renew:
        return _renew(entries)
    if importlib.util.find_spec("atheris") is None:
        _say(WITHOUT_ATHERIS)
        return 2
    if options.merge:
        _say(f"fuzz: {sum(merge(entry, options.merge) for entry in entries)} inputs were added to the corpus")
        return _check_corpus_size()
    budget = Budget(seconds=options.seconds, executions=options.executions, jobs=options.jobs, seed=options.seed)
    outcomes = run_all(entries, budget, keep=options.keep, report=_say)
    return _summarise(outcomes)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="of fuzzing, for all targets together (60)")
    parser.add_argument("--executions", type=int, default=0, help="for all targets together, instead of seconds")
    parser.add_argument("--target", action="append", choices=list(BY_NAME), help="only this one; may be repeated")
    parser.add_argument("--jobs", type=int, default=1, help="targets at the same time (1)")
    parser.add_argument("--seed", type=int, default=0, help="of libFuzzer; 0: another one in each run (0)")
    parser.add_argument("--keep", type=Path, help="folder for new inputs, used again by the next run; else forgotten")
    parser.add_argument("--input", type=Path, help="with one --target: run this file, without atheris")
    parser.add_argument("--merge", type=Path, help="a folder made with --keep: take what reaches more into the corpus")
    parser.add_argument("--renew", action="store_true", help="write the seeds made of valid objects into the corpus")
    options = parser.parse_args()
    if options.input and len(options.target or ()) != 1:
        parser.error("--input needs exactly one --target")
    return options


def _replay(entries: list[Entry], path: Path) -> int:
    """Run one saved input; an exception is the finding and shows its traceback."""
    bounded(load(entries[0]).check)(path.read_bytes())
    _say(f"fuzz: {path} passes {entries[0].name}")
    return 0


def _renew(entries: list[Entry]) -> int:
    """Seeds are named by their number; what fuzzing found has other names and stays."""
    for entry in entries:
        folder = CORPUS / entry.name
        folder.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(load(entry).seeds()):
            (folder / f"seed-{number:02}").write_bytes(seed)
    return _check_corpus_size()


def _check_corpus_size() -> int:
    size = sum(path.stat().st_size for entry in ENTRIES for path in corpus_files(entry))
    _say(f"fuzz: the corpus has {size:,} bytes")
    return 0 if size <= CORPUS_BYTES_MAX else 1


def _summarise(outcomes: list[Outcome]) -> int:
    findings = sum(outcome.finding is not None for outcome in outcomes)
    executions = sum(outcome.executions for outcome in outcomes)
    verdict = "none escaped" if findings == 0 else f"{findings} of them with a finding"
    _say(f"fuzz: {executions:,} executions of {len(outcomes)} targets, {verdict}")
    return 0 if findings == 0 else 1


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
