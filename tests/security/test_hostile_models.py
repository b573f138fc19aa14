"""Files that are no models but attacks: each is refused by name, and costs neither memory nor time nor the program."""

from __future__ import annotations

import json
import os
import pickle
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from protocol.errors import OperatorError
from sfnode.children.child_program import Program
from sfnode.model_files.model_folder import INDEX_FILE, PICKLE_FILE, SINGLE_FILE
from sfnode.model_files.resolve import resolve_model
from sfnode.model_files.watched_process import run_watched
from sfnode.training.conversion.from_gguf import convert_gguf
from sfnode.training.conversion.from_pickles import convert_pickles
from sfnode.training.conversion.gguf_header import check_header
from sfnode.training.model.loading import load_causal_lm
from sfnode.training.model.weights_digest import content_of
from tests.children.made_up_programs import made_up
from tests.support.stored_models import demo_tensors, gguf_model, pickled_folder, raw_gguf, without_limits

CPU = torch.device("cpu")
NAME = "model.decoder.final_layer_norm.bias"
MILLISECONDS_MAX = 2_000  # of a refusal; no honest file of this size takes as long


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SFNODE_MODELS", str(tmp_path / "models"))
    without_limits(monkeypatch)


def refused(run: Callable[[], object]) -> str:
    """What the refusal says, which comes soon."""
    start = time.monotonic()
    with pytest.raises(OperatorError) as caught:
        run()
    assert time.monotonic() - start < MILLISECONDS_MAX / 1_000
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- pickles


class Shell:
    """Runs a command where it is unpickled."""

    def __init__(self, command: str) -> None:
        self._command = command

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (self._command,)


def refused_pickle(folder: Path) -> str:
    out = folder.with_name("out")
    out.mkdir()
    said = refused(lambda: convert_pickles(folder, out))
    assert PICKLE_FILE in said
    assert not list(out.iterdir())
    return said


def with_value(tmp_path: Path, value: object) -> Path:
    return pickled_folder(tmp_path / "model", {**demo_tensors(), NAME: value})


def test_pickle__with_code__is_refused_and_not_run(tmp_path: Path) -> None:
    said = refused_pickle(with_value(tmp_path, Shell(f"touch {tmp_path / 'executed'}")))
    assert "its pickle asks for posix.system, and code that comes with a model is not run" in said
    assert not (tmp_path / "executed").exists()


def test_pickle__plain_one_with_code__is_refused_and_not_run(tmp_path: Path) -> None:
    folder = pickled_folder(tmp_path / "model", {})
    (folder / PICKLE_FILE).write_bytes(pickle.dumps(Shell(f"touch {tmp_path / 'executed'}")))
    assert "not a file that torch.save has written since version 1.6" in refused_pickle(folder)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ({"nested": torch.zeros(2)}, "is a dict, not a tensor"),
        ([torch.zeros(2)], "is a list, not a tensor"),
        (3, "is a int, not a tensor"),
        (torch.eye(3).to_sparse(), "is sparse, quantised or without values"),
        (torch.zeros(2, device="meta"), "is sparse, quantised or without values"),
        (torch.zeros(4, dtype=torch.complex64), None),
        (torch.zeros(4).to(torch.float8_e5m2), "is of torch.float8_e5m2, which is not loaded"),
        (torch.zeros(1).expand(1 << 20, 1 << 20), "promises more values than the file holds"),
    ],
    ids=["dict", "list", "int", "sparse", "meta", "complex", "float8", "expanded"],
)
def test_pickle__value_is_no_dense_float_tensor__is_refused_by_name(
    value: object, complaint: str | None, tmp_path: Path
) -> None:
    folder = with_value(tmp_path, value)
    if complaint is None:  # left out, like a mask of integers: then the model lacks it
        assert "the weights lack 1 tensors" in refused(lambda: content_of(resolve_here(folder)))
        return
    said = refused_pickle(folder)
    assert complaint in said and NAME in said


def resolve_here(folder: Path) -> Path:
    out = folder.with_name("converted")
    out.mkdir()
    convert_pickles(folder, out)
    for path in folder.iterdir():
        if path.suffix != ".bin":
            (out / path.name).write_bytes(path.read_bytes())
    return out


@pytest.mark.parametrize("content", [[torch.zeros(2)], torch.zeros(2), {3: torch.zeros(2)}], ids=["list", "one", "key"])
def test_pickle__is_not_a_dictionary_of_names__is_refused(content: Any, tmp_path: Path) -> None:
    folder = pickled_folder(tmp_path / "model", {})
    torch.save(content, folder / PICKLE_FILE)
    said = refused_pickle(folder)
    assert "not tensors by name" in said or "is not the name of a tensor" in said


def test_pickle__many_names_for_one_memory__is_refused(tmp_path: Path) -> None:
    """Ten thousand views of a megabyte: 10 GB when they are written."""
    one = torch.zeros(1 << 18)
    said = refused(
        lambda: convert_pickles(pickled_folder(tmp_path / "model", {f"t{i}": one for i in range(2_000)}), tmp_path)
    )
    assert "its tensors are more than 2 times what the files hold" in said


def test_pickle__zip_bomb__is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    folder = pickled_folder(tmp_path / "model", {})
    with zipfile.ZipFile(folder / PICKLE_FILE, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(1 << 24))
    assert "its part 'archive/data.pkl' is packed, which torch.save never does" in refused_pickle(folder)


def test_pickle__parts_that_overlap__are_refused(tmp_path: Path) -> None:
    folder = pickled_folder(tmp_path / "model", {})
    with zipfile.ZipFile(folder / PICKLE_FILE, "w") as archive:
        archive.writestr("archive/data/0", bytes(10_000))
        entry = archive.infolist()[0]
        archive.filelist += [entry] * 99
    assert "its parts promise more bytes than the file has" in refused_pickle(folder)


def test_pickle__of_too_many_bytes__is_refused_before_it_is_read(tmp_path: Path) -> None:
    folder = pickled_folder(tmp_path / "model", {})
    with zipfile.ZipFile(folder / PICKLE_FILE, "w") as archive:
        archive.writestr("archive/data.pkl", bytes((1 << 24) + 1))
    assert "its pickle has 16777217 bytes, more than 16777216" in refused_pickle(folder)


@pytest.mark.parametrize("part", range(8))
def test_pickle__cut_short__is_refused(part: int, tmp_path: Path) -> None:
    folder = pickled_folder(tmp_path / "model", demo_tensors())
    whole = (folder / PICKLE_FILE).read_bytes()
    (folder / PICKLE_FILE).write_bytes(whole[: len(whole) * part // 8])
    refused_pickle(folder)


# --- GGUF


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def tensor(name: bytes, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


HOSTILE_GGUF = {
    "no magic": (b"GGML" + bytes(40), "does not begin as one"),
    "empty": (b"", "is empty"),
    "only a magic": (b"GGUF", "promises 4 bytes at 4, the file has 4"),
    "of the other byte order": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "version 50331648 is not read"),
    "2^60 tensors": (raw_gguf(counts=(1 << 60, 0)), f"names {1 << 60} tensors, more than"),
    "2^60 fields": (raw_gguf(counts=(0, 1 << 60)), f"names {1 << 60} fields, more than"),
    "a string of 2^60 bytes": (
        raw_gguf(text(b"general.name") + struct.pack("<IQ", 8, 1 << 60), counts=(0, 1)),
        f"promises {1 << 60} bytes",
    ),
    "an array of 2^60 numbers": (
        raw_gguf(text(b"a") + struct.pack("<IIQ", 9, 4, 1 << 60), counts=(0, 1)),
        f"names {1 << 60} values in arrays",
    ),
    "an array that the file does not hold": (
        raw_gguf(text(b"a") + struct.pack("<IIQ", 9, 4, 1 << 20), counts=(0, 1)),
        f"promises {4 << 20} bytes",
    ),
    "an array of arrays": (
        raw_gguf(text(b"a") + struct.pack("<IIQ", 9, 9, 1), counts=(0, 1)),
        "a field is of type 9, which is not known",
    ),
    "a field of an unknown type": (
        raw_gguf(text(b"a") + struct.pack("<I", 77), counts=(0, 1)),
        "a field is of type 77, which is not known",
    ),
    "a tensor of 2^60 values": (raw_gguf(tensors=tensor(b"t", (1 << 60,)), counts=(1, 0)), "behind the file's end"),
    "a tensor whose size overflows": (
        raw_gguf(tensors=tensor(b"t", (1 << 32, 1 << 32)), counts=(1, 0)),
        "behind the file's end",
    ),
    "a tensor that begins behind the end": (
        raw_gguf(tensors=tensor(b"t", (1,), offset=1 << 40), counts=(1, 0)),
        "behind the file's end",
    ),
    "a tensor of 2^31 dimensions": (
        raw_gguf(tensors=text(b"t") + struct.pack("<I", 1 << 31), counts=(1, 0)),
        "dimensions in 't', more than 4",
    ),
    "a tensor of an unknown type": (
        raw_gguf(tensors=tensor(b"t", (1,), kind=999), counts=(1, 0)),
        "is of type 999, which is not known",
    ),
    "an alignment that is no power of two": (
        raw_gguf(text(b"general.alignment") + struct.pack("<II", 4, 0), counts=(0, 1)),
        "alignment, 0, is not a power of two",
    ),
}


@pytest.mark.parametrize(("content", "complaint"), HOSTILE_GGUF.values(), ids=HOSTILE_GGUF)
def test_gguf__promises_more_than_it_holds__is_refused_before_the_library_reads_it(
    content: bytes, complaint: str, tmp_path: Path
) -> None:
    path = tmp_path / "hostile.gguf"
    path.write_bytes(content)
    said = refused(lambda: convert_gguf(path, tmp_path))
    assert complaint in said and str(path) in said


def test_gguf__header_of_100_mb__is_refused(tmp_path: Path) -> None:
    path = tmp_path / "long.gguf"
    with path.open("wb") as file:
        file.write(raw_gguf(text(b"a") + struct.pack("<IQ", 8, 100 << 20), counts=(0, 1)))
        file.truncate(101 << 20)
    assert "its header is longer than 67108864 bytes" in refused(lambda: check_header(path))


def test_gguf__empty_model__is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.gguf").write_bytes(raw_gguf())
    assert "cannot be read as a model" in refused(lambda: convert_gguf(tmp_path / "empty.gguf", tmp_path))


def test_gguf__architecture_that_transformers_does_not_read__is_refused(tmp_path: Path) -> None:
    fields = text(b"general.architecture") + struct.pack("<I", 8) + text(b"nonesuch")
    (tmp_path / "other.gguf").write_bytes(raw_gguf(fields, counts=(0, 1)))
    said = refused(lambda: convert_gguf(tmp_path / "other.gguf", tmp_path))
    assert "GGUF model with architecture nonesuch is not supported yet" in said


@pytest.mark.parametrize("part", range(1, 8))
def test_gguf__cut_short__is_refused(part: int, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    gguf_model(path)
    os.truncate(path, path.stat().st_size * part // 8)
    refused(lambda: convert_gguf(path, tmp_path))


# --- safetensors


def safetensors(header: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header


def one_tensor(end: int, shape: list[int]) -> bytes:
    return safetensors(json.dumps({NAME: {"dtype": "F32", "shape": shape, "data_offsets": [0, end]}}).encode())


HOSTILE_SAFETENSORS = {
    "a header of 2^60 bytes": safetensors(b"{}", 1 << 60),
    "a header longer than the file": safetensors(b"{}", 1 << 20),
    "a tensor beyond the end": one_tensor(1 << 40, [1 << 38]),
    "more values than bytes": one_tensor(4, [1 << 38]),
    "a shape that overflows": one_tensor(4, [1 << 40, 1 << 40]),
    "a header that is no JSON": safetensors(b"{" * 1_000),
}


@pytest.mark.parametrize("content", HOSTILE_SAFETENSORS.values(), ids=HOSTILE_SAFETENSORS)
def test_safetensors__promises_more_than_it_holds__is_refused(content: bytes, tmp_path: Path) -> None:
    folder = pickled_folder(tmp_path / "model", {})
    (folder / SINGLE_FILE).write_bytes(content)
    assert "cannot be loaded" in refused(lambda: load_causal_lm(folder, CPU, torch.float32))


def test_safetensors__header_of_more_than_100_mb__is_refused(tmp_path: Path) -> None:
    folder = pickled_folder(tmp_path / "model", {})
    with (folder / SINGLE_FILE).open("wb") as file:
        file.write(safetensors(b"", 101 << 20))
        file.truncate(102 << 20)
    assert "cannot be loaded" in refused(lambda: load_causal_lm(folder, CPU, torch.float32))


def test_safetensors__tensor_of_another_shape__is_refused_by_name(tmp_path: Path) -> None:
    folder = pickled_folder(tmp_path / "model", {})
    save_file({**demo_tensors(), NAME: torch.zeros(7)}, folder / SINGLE_FILE, metadata={"format": "pt"})
    said = refused(lambda: load_causal_lm(folder, CPU, torch.float32))
    assert f"the tensor {NAME} has shape [7], config.json's model [128]" in said


def test_index__of_a_hundred_thousand_brackets__is_refused(tmp_path: Path) -> None:
    folder = pickled_folder(tmp_path / "model", {})
    (folder / INDEX_FILE).write_text("[" * 100_000)
    assert "is not an index" in refused(lambda: load_causal_lm(folder, CPU, torch.float32))


# --- the process and its limits

GREEDY = """
import numpy, sys
from sfnode.training.resource_limits import allow
allow(memory=1 << 20, file=1 << 20)
try:
    numpy.ones(1 << 29)
except MemoryError:
    print("no memory", file=sys.stderr)
try:
    with open(sys.argv[1], "wb") as file:
        file.write(bytes(2 << 20))
except OSError as error:
    print(error.strerror, file=sys.stderr)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems take a limit of the address space and forget it")
def test_process__takes_more_than_it_may__is_told_so_by_the_system(tmp_path: Path) -> None:
    command = [sys.executable, "-c", GREEDY, str(tmp_path / "large")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == ["no memory", "File too large"]


def test_process__stands_still__is_ended(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="it stood still"):
        run_watched(made_up(tmp_path, "while True: pass"), tmp_path, lambda _bytes: None, 0.1, "it stood still")


def test_process__its_starter_is_gone__ends_by_itself(tmp_path: Path) -> None:
    """Its standard input closes, however the starter has ended."""
    program = Program(module="sfnode.training.conversion.process", arguments=("gguf", str(tmp_path), str(tmp_path)))
    process = program.start(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(60) != 0


def test_process__hostile_files__are_refused_through_it_and_leave_nothing(tmp_path: Path) -> None:
    """The whole way once: reference, process, message, cache."""
    shell = with_value(tmp_path, Shell(f"touch {tmp_path / 'executed'}"))
    with pytest.raises(OperatorError, match=rf"^{shell}/{PICKLE_FILE}: its pickle asks for posix\.system"):
        resolve_model(str(shell))
    assert not (tmp_path / "executed").exists()
    path = tmp_path / "hostile.gguf"
    path.write_bytes(np.frombuffer(raw_gguf(counts=(1 << 60, 0)), np.uint8).tobytes())
    with pytest.raises(OperatorError, match=rf"^{path} is not a GGUF file that can be read: it names"):
        resolve_model(str(path))
    assert not list((tmp_path / "models").iterdir())
