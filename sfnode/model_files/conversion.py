"""Converts weights that are not safetensors, once, in a process of its own, into a folder of the model cache."""

import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

from protocol.errors import OperatorError
from sfnode.children.child_program import Program
from sfnode.model_files import model_folder as files
from sfnode.model_files.model_cache import VARIABLE, cache_folder
from sfnode.model_files.model_folder import CONFIG_FILE, gguf_file, pickle_files, weight_files
from sfnode.model_files.watched_process import OnProgress, run_watched
from sfnode.storage import disk

_STALL_S = 300.0  # torch starts in 30 s from a cold disk; then a file or a GB appears every few seconds
_LEFT_OVER_S = 60.0  # an older folder that nobody has locked was left by a killed process
_LEFT_OVER_MAX_S = 86_400.0  # where folders cannot be locked: no conversion takes a day
_MAKING = ".making-"
_LOOK_S = 0.5
TOTAL_FILE = "total"  # next to the folder that the process fills: the bytes of its weights
REFUSED = 3  # the exit code of the process when its last line is the reason


class WeightForm(StrEnum):
    """Names a format of weights that the converting process can read."""

    GGUF = "gguf"  # a whole model in one file, or in a folder, whose config.json and tokenizer come first
    PICKLES = "pickles"  # a folder with pytorch_model.bin, or shards of it with their index
    QUANTISED = "quantised"  # a folder with safetensors in 4 or 8 bits, which training cannot compute with


def form_of(path: Path) -> WeightForm | None:
    """Return what must be converted, pickles before GGUF; None for safetensors that train, and if there is no model."""
    if path.is_file():
        return WeightForm.GGUF
    if not (path / CONFIG_FILE).is_file():
        return None
    if files.has_safetensors(path):
        return WeightForm.QUANTISED if files.is_decodable(path) else None
    if pickle_files(path):
        return WeightForm.PICKLES
    return None if gguf_file(path) is None else WeightForm.GGUF


@contextmanager
def making_alone(name: str, on_progress: OnProgress) -> Iterator[None]:
    """Wait while another process makes the model of this name, and keep others waiting while the block runs.

    A process that was killed keeps nobody waiting. Look at the cache again in the block. OperatorError.
    """
    path = cache_folder() / f".lock-{name}"
    with _writable(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    is_alone = False
    try:
        while not (is_alone := disk.has_locked(descriptor, path)):
            on_progress(f"waiting for another process, which makes the same model, {name}", 0, 0)
            time.sleep(_LOOK_S)
        yield
    finally:
        if is_alone:  # one that waits and gives up leaves the file to the one that has locked it
            path.unlink(missing_ok=True)  # a process that has it open still gets the lock, and finds the model made
        os.close(descriptor)


def _writable(home: Path) -> AbstractContextManager[None]:
    """Say where the cache lies if the system refuses something in the block. OperatorError."""
    return disk.os_errors(f"write to {home}", f"; {VARIABLE} names another folder")


@contextmanager
def work_folder() -> Iterator[Path]:
    """Make a new folder to build a model in; remove it when the block ends. OperatorError if it cannot be written."""
    home = cache_folder()
    with _writable(home):
        home.mkdir(parents=True, exist_ok=True)
        clear_left_overs()
        work = home / f"{_MAKING}{secrets.token_hex(8)}"
        work.mkdir(mode=0o700)
        descriptor = os.open(work, os.O_RDONLY)
        try:
            with suppress(OperatorError):  # the file system has no locks
                disk.has_locked(descriptor, work)
            yield work
        finally:
            os.close(descriptor)
            shutil.rmtree(work, ignore_errors=True)


def clear_left_overs() -> None:
    """Remove the folders of processes that were killed while they made a model: each may take as much as the model."""
    for folder in cache_folder().glob(f"{_MAKING}*"):
        with suppress(OSError):
            age_s = time.time() - folder.stat().st_mtime
            if age_s > _LEFT_OVER_S and _is_abandoned(folder, age_s):
                shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path, age_s: float) -> bool:
    """Return whether no process has locked the folder; where the file system has no locks, whether it is very old."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        return disk.has_locked(descriptor, folder)
    except OperatorError:
        return age_s > _LEFT_OVER_MAX_S
    finally:
        os.close(descriptor)


def convert_weights(form: WeightForm, source: Path, work: Path, on_progress: OnProgress) -> Path:
    """Convert the model in ``source``; return a folder in ``work`` with config.json, safetensors and the tokenizer.

    OperatorError: it is not a model, takes too much, or the extra `train` is not installed.
    """
    needed = ("torch", "transformers", "safetensors", *(["gguf"] if form is WeightForm.GGUF else []))
    if missing := [name for name in needed if find_spec(name) is None]:
        raise OperatorError(
            f"{source}: converting it needs {' and '.join(missing)}, which this install lacks: in a clone of sfnode, "
            "run `python deploy/install.py --extras train`"
        )
    out, seen = work / "model", work / "source"
    out.mkdir()
    seen.mkdir()
    shown = _show(form, source, seen, out)
    program = Program(module="sfnode.training.conversion.process", arguments=(form.value, str(shown), str(out)))
    text, still = f"converting {source}", f"{source}: converting it stood still for {_STALL_S:.0f} s, and was ended"
    code, said = run_watched(program, work, lambda done: on_progress(text, *_of_total(done, work)), _STALL_S, still)
    if code:
        reason = said.splitlines()[-1][:1_000] if said else "it ended without a word"
        if code < 0:
            reason = f"{source}: the process that converted it was killed by signal {-code}; it may need more memory"
        elif code != REFUSED:
            reason = f"{source}: the process that converted it failed: {reason}"
        raise OperatorError(reason.replace(str(shown), str(source)))
    return out


def _of_total(done: int, work: Path) -> tuple[int, int]:
    """Return the bytes done, and of how many: the process writes that down when it knows it; 0 before."""
    with suppress(OSError, ValueError):
        total = int((work / TOTAL_FILE).read_text("ascii")[:20])
        return min(done, total), total
    return done, 0


def _show(form: WeightForm, source: Path, seen: Path, out: Path) -> Path:
    """Link the files that the process may read into ``seen``, and copy the small ones to ``out``."""
    if source.is_dir():
        shutil.copyfile(source / CONFIG_FILE, out / CONFIG_FILE)
        files.copy_beside(source, out)
    if form is not WeightForm.GGUF:
        is_quantised = form is WeightForm.QUANTISED
        for name in (CONFIG_FILE, *weight_files(source)) if is_quantised else pickle_files(source):
            (seen / name).symlink_to((source / name).resolve())
        return seen
    file = gguf_file(source) if source.is_dir() else source
    assert file is not None
    shown = seen / file.name
    shown.symlink_to(file.resolve())
    return shown
