"""Check, without loading the model, its files and the device and torch to compute it with."""

import json
import os
import subprocess
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

from protocol.errors import OperatorError
from protocol.run import ModelSpec, TaskSpec
from protocol.schema import Malformed, from_json_untrusted, to_plain
from sfnode.children.child_program import Program
from sfnode.doctor.findings import Finding, fail, ok, unknown, warning
from sfnode.extras import how_to_add
from sfnode.model_files import verify
from sfnode.storage import disk
from sfnode.worker_protocol import DeviceReport

_CUDA_BUILD = "+cu"  # in torch's version; without a card, `docker run` may lack --gpus
_NVIDIA = Path("/proc/driver/nvidia/version")  # the driver of a card makes it
_TORCH_S = 90.0  # its first import from a cold disk takes half a minute


# --- files


def check_model_files(folder: Path | None, spec: ModelSpec) -> Finding:
    """Check that every file of the model has the run's hash."""
    name = "model files"
    if folder is None:
        size = sum(file.bytes for file in spec.files) / 1e6
        text = f"{spec.id}, {size:,.1f} MB, is not on this disk yet, or not as sfnode loads it"
        how = "fetches it from the neighbours" if spec.id.startswith("local:") else "fetches and converts it"
        advice = f"`sfnode join` {how}; or give a folder with a copy: --model FOLDER"
        return warning(name, text, advice)
    again = f"get all files of {spec.id}, revision {spec.revision or 'any'}"
    try:
        verify.check_definition(folder, spec)
        has_weights = verify.has_weight_files(folder, spec)
    except OperatorError as error:
        return fail(name, str(error), again)
    if not has_weights:
        advice = f"`sfnode join` compares the weights themselves; if they are others, {again}"
        return warning(name, f"the weights in {folder} are in other files than the run's; they may be the same", advice)
    return ok(name, f"{len(spec.files)} files in {folder} have the run's hashes")


# --- tokens


def check_tokens(folder: Path, task: TaskSpec) -> Finding:
    """Check in a process of its own, with the libraries that train, that the task's words fit model and tokenizer."""
    name, text = "tokens", json.dumps(to_plain(task, as_rows=False))
    advice = "the line says what does not fit; a copy of the run's model may be incomplete"
    try:
        done = Program(module="sfnode.training.token_check", arguments=(str(folder), text)).run(_TORCH_S)
        found, fault = json.loads((done.stdout.splitlines() or ["[]"])[-1])
    except subprocess.TimeoutExpired:
        return unknown(name, f"the tokenizer is not loaded within {_TORCH_S:.0f} s")
    except (OSError, ValueError):
        return unknown(name, "the libraries that load a tokenizer cannot be used", "see the line on the device")
    return fail(name, fault, advice) if fault else ok(name, found)


# --- device


def find_devices() -> DeviceReport | str:
    """Return what torch reports of this machine, asked in its own process; else a text that says why it cannot."""
    missing = [name for name in ("torch", "transformers", "safetensors") if find_spec(name) is None]
    if missing:
        return f"{' and '.join(missing)} not installed"
    try:
        done = Program(module="sfnode.training.devices").run(_TORCH_S)
    except OSError as error:
        return f"torch cannot be asked: {disk.describe_os_error(error)}"
    except subprocess.TimeoutExpired:
        return f"torch says nothing within {_TORCH_S:.0f} s: a driver hangs, perhaps"
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        return f"torch cannot be used: {(done.stderr.splitlines() or ['it ended without a word'])[-1][:200]}"
    try:
        return from_json_untrusted(DeviceReport, lines[-1], "devices")
    except Malformed:  # a library has printed something at its end
        return f"torch cannot be used: {lines[-1][:200]}"


def check_device(found: DeviceReport | str, device: str, dtype: str) -> Finding:
    """Check that the device is there and computes in the number format ``dtype``."""
    if isinstance(found, str):
        advice = f"{how_to_add('train')}; without it a node can still store, serve and flood: sfnode join --relay"
        return fail("device", found, advice)
    cuda = found.cuda
    chosen = device if device != "auto" else ("cuda" if cuda else "cpu")
    text = f"torch {found.torch}; {_describe(found, chosen)}, {dtype}"
    if chosen == "cuda" and not cuda:
        advice = "install the driver and a CUDA build of torch, or --device cpu"
        return fail("device", f"{text}: torch finds no CUDA device", advice)
    if device == "auto" and not cuda and _NVIDIA.exists():
        advice = "install a build of torch for CUDA (docs/install.md, Graphics cards), or say --device cpu"
        return warning("device", f"{text}: there is an NVIDIA card, which this torch does not use", advice)
    if chosen == "mps" and not found.mps:
        return fail("device", f"{text}: torch finds no Apple GPU", "use --device cpu")
    if dtype == "int4" and chosen not in ("cpu", "cuda"):
        return fail("device", f"{text}: 4 bits are computed on CPUs and CUDA only", "use --dtype int8")
    # not by `find_spec`, which misses it where `sfnode.training` hides it from transformers
    if dtype.startswith("int") and PathFinder.find_spec("torchao") is None:
        advice = "in a clone of sfnode, run `python deploy/install.py --extras train,quantised`"
        return fail("device", f"{text}: torchao is not installed", advice)
    if dtype == "bf16" and chosen == "cuda" and not cuda[0].bf16:
        return warning("device", f"{text}: this card computes bf16 by detours", "use --dtype fp16 or fp32")
    return ok("device", text)


def describe_speeds(found: DeviceReport | str) -> Finding | None:
    """Say how fast the processor multiplies in each number format; None where it has not been measured."""
    if isinstance(found, str) or not found.speeds:
        return None
    listed = ", ".join(map(str, found.speeds))
    return ok("number formats", f"10^9 operations a second in a layer's product with 256 tokens: {listed}")


def _describe(found: DeviceReport, chosen: str) -> str:
    if chosen == "cuda" and found.cuda:
        first = found.cuda[0]
        return f"{first.name}, {first.free / 1e9:.1f} of {first.total / 1e9:.1f} GB free"
    no_card = ", and finds no NVIDIA card" if _CUDA_BUILD in found.torch and not found.cuda else ""
    return f"{chosen}, {found.threads} threads of {os.cpu_count()} cores{no_card}"
