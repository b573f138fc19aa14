"""Write the trained model as a Hugging Face folder. Each weight is rounded once, as a node of that dtype does it.

A folder is written all at once: readers find it complete or as it was before, even after an error.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError

from protocol.errors import OperatorError
from protocol.run import Manifest
from protocol.state import Coefficients
from protocol.subspace import Bases
from sfnode.model_files import model_folder as files
from sfnode.storage import disk
from sfnode.training.model import ParameterPlace, check_model, check_whole_fits, fold_weights, is_of, loading, places
from sfnode.training.task import PromptEncoder

ORIGIN_FILE = "sfnode.json"  # names the run and state of the weights, and the files that an export has made


@contextmanager
def fresh_folder(out: Path, origin: Mapping[str, object], *, force: bool, read: Sequence[Path] = ()) -> Iterator[Path]:
    """Yield a temporary folder next to `out` to write into; it becomes `out` when the block ends without an error.

    With `force`, an earlier export in `out` is replaced at that end, not before; other files are never replaced.
    `origin` goes into ORIGIN_FILE. `read` lists folders that the export reads, which it must not replace.

    Raises OperatorError when `out` may not be replaced, is not a folder, or when writing fails. `out` is then unchanged
    and the temporary folder is removed.
    """
    out = out.resolve()  # "." has no name to derive the temporary one from; of a link, the target is replaced
    part = out.with_name(f".{out.name}.part-{os.getpid()}") if out.name else out
    try:
        check_free(out, force, read)
        out.parent.mkdir(parents=True, exist_ok=True)
        _remove_killed(out)
        part.mkdir()
        yield part
        made = [part / ORIGIN_FILE, *(path for path in part.rglob("*") if path.is_file())]
        names = sorted(path.relative_to(part).as_posix() for path in made)
        text = json.dumps({**origin, "files": names}, indent=2) + "\n"
        (part / ORIGIN_FILE).write_text(text, encoding="utf-8")
        # safetensors lets only the owner read its files: give all what the user's umask allows
        mask = part.stat().st_mode & 0o666  # a folder just made has 0o777 less the umask
        for path in made:
            path.chmod(mask)
        check_free(out, force, read)  # writing took minutes, and somebody may have put something there
        _move_into_place(part, out)
    except (OSError, SafetensorError, StrictDataclassError) as error:
        raise OperatorError(f"cannot write {out}: {disk.describe_os_error(error)}") from error
    finally:
        if part != out:
            shutil.rmtree(part, ignore_errors=True)


def _remove_killed(out: Path) -> None:
    """Remove the temporary folders of exports to `out` whose process is gone. OSError."""
    for path in out.parent.iterdir():
        of = re.fullmatch(re.escape(f".{out.name}.part-") + "([0-9]{1,9})", path.name)
        # In a container, a process may have the id of the one that was killed.
        if of and (int(of[1]) == os.getpid() or not psutil.pid_exists(int(of[1]))):
            shutil.rmtree(path, ignore_errors=True)


def check_free(out: Path, force: bool, read: Sequence[Path]) -> None:
    """Raise OperatorError for a folder that an export may not become (`fresh_folder`)."""
    out = out.resolve()
    if not out.name:
        raise OperatorError(f"{out} cannot be replaced: give the name of a new folder")
    if out.exists() and not out.is_dir():
        raise OperatorError(f"{out} is a file: give the name of a new folder")
    for path in map(Path.resolve, read):
        if path == out or out in path.parents:
            raise OperatorError(f"{out} holds {path}, which is being read: give another folder")
    if not out.is_dir() or not any(out.iterdir()):
        return
    if not force:
        raise OperatorError(f"{out} is not empty: give another folder, or --force to replace an earlier export in it")
    made = _made_by_an_export(out)
    if foreign := next((path for path in out.rglob("*") if path.relative_to(out) not in made), None):
        raise OperatorError(
            f"{out} holds {foreign.relative_to(out)}, which no export has made: --force replaces nothing but "
            "exports. Give another folder, or remove what is in this one yourself"
        )


def _made_by_an_export(out: Path) -> set[Path]:
    """Return the plain files in a folder that an earlier export says are its own, and the folders that they are in."""
    try:
        files = [Path(name) for name in json.loads((out / ORIGIN_FILE).read_text("utf-8"))["files"]]
        own = {place for file in files if (out / file).is_file() for place in (file, *file.parents)}
        return {place for place in own if not (out / place).is_symlink()}
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return set()


def _move_into_place(part: Path, out: Path) -> None:
    """Rename `part` to `out`. A full `out` is moved aside first and removed last."""
    if not out.exists():
        part.rename(out)
        return
    old = part.with_name(f"{part.name}-old")
    out.rename(old)
    try:
        part.rename(out)
    except OSError:
        old.rename(out)
        raise
    shutil.rmtree(old)


def export_model(
    bases: Bases,
    coefficients: Coefficients,
    base_folder: Path,
    out_folder: Path,
    dtype: torch.dtype = torch.float32,
    force: bool = False,
) -> None:
    """Write a folder that `AutoModelForCausalLM.from_pretrained` loads: config, safetensors, and what goes with them.

    That are the files of the base model: tokenizer, chat template, settings for generation.

    Weights are the view of `coefficients` on a node with weights in `dtype`. In 16 bits they are rounded up or down in
    proportion, since rounding to the nearest would lose most of a small update. Needs about 4 bytes of memory per
    parameter, or 2.

    OperatorError: the base model is not the run's, or larger than main memory; `out_folder` is not empty (without
    `force`), holds the base model or foreign files, or cannot be written. The folder is then unchanged.
    """
    manifest = bases.manifest
    check_whole_fits(base_folder)
    check_model(base_folder, manifest.model)
    origin = origin_of(manifest, coefficients, base_folder)
    with fresh_folder(out_folder, origin, force=force, read=(base_folder,)) as part:
        model = loading.load_causal_lm(base_folder, torch.device("cpu"), dtype)
        check_tensors(manifest, places(model))
        # The view of the coefficients goes into the model's own parameters, so that tied ones follow.
        parameters = dict(model.named_parameters())
        epochs = {epoch: coefficients.core(epoch) for epoch in coefficients.epochs()}
        with torch.no_grad():
            for name, weight in fold_weights(bases, epochs, parameters).items():
                parameters[name].copy_(weight)
        # Loading turned them off, and return_dict on: that stays, since transformers runs no model without it.
        asked = files.read_config(base_folder / files.CONFIG_FILE).get("output_hidden_states", False)
        model.config.output_hidden_states = asked
        model.save_pretrained(part)
        # What was made of config.json goes; the model's own file, if it has one, follows.
        (part / files.GENERATION_FILE).unlink(missing_ok=True)
        files.copy_beside(base_folder, part)


def check_tensors(manifest: Manifest, known: Mapping[str, ParameterPlace]) -> None:
    """Raise OperatorError unless the model has all tensors of the run, in their shapes."""
    for tensor in manifest.tensors:
        if tensor.name not in known or not is_of(tensor, known[tensor.name]):
            raise OperatorError(f"tensor {tensor.name}: the model has none of that name and shape that can be trained")


def origin_of(manifest: Manifest, coefficients: Coefficients, base_folder: Path) -> dict[str, object]:
    """Return what an export says about the run and the state that it is made from. OperatorError: no tokenizer."""
    encoder = PromptEncoder(loading.load_tokenizer(base_folder), manifest.task)
    return {
        "run": manifest.name,
        "run_id": manifest.run_id.hex(),
        "state_digest": coefficients.digest().hex(),
        "base_model": manifest.model.id,
        "base_revision": manifest.model.revision,
        "kind": manifest.task.kind.value,
        "template": manifest.task.template,
        "completion": manifest.task.completion,
        "label_words": list(manifest.task.label_words),
        "lead_tokens": list(encoder.lead),  # follow the prompt, if one token more sets the label words apart
        "label_tokens": list(encoder.label_tokens),
        "max_tokens": manifest.task.max_tokens,
    }
