"""Vectors of manifests (SPEC 1): valid ones, every bound of every field, every rule, every fault of form."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any, TypeAlias

from protocol.crypto.hashing import hash_fields
from protocol.crypto.keys import Signer
from protocol.run.manifest import coefficient_count, coefficient_max, decode_run_untrusted
from tests.support.manifests import OWNER, manifest_data
from tests.vectors.manifest_dense import DENSE, DENSE_NUMBERS, dense_rows
from tests.vectors.manifest_forms import faults_of_form
from tests.vectors.manifest_rewards import REWARD, rules_of_rewards
from tests.vectors.notation import Case, Document, against, case, document, judged, sliced, text

Data: TypeAlias = dict[str, Any]

CHOICE: Data = {"task.kind": "choice", "task.label_words": [], "task.completion": " {choice}"}
COMPLETION: Data = {"task.kind": "completion", "task.label_words": [], "task.completion": "{text}"}
# path, least and largest value or length (SPEC 1.1); what else must change for the largest to be valid
NUMBERS: tuple[tuple[str, int, int, Data], ...] = (
    ("model.config.bytes", 0, 1 << 40, {}),
    ("model.weights.0.bytes", 0, 1 << 40, {}),
    ("model.tokenizer.0.bytes", 0, 1 << 40, {}),
    ("tensors.0.rows", 1, 1 << 24, {}),
    ("tensors.0.cols", 1, 1 << 24, {}),
    ("task.max_tokens", 4, 1 << 16, {}),
    ("task.batch_rows", 1, 1 << 16, {}),
    ("method.rank", 1, 128, {}),
    ("method.epoch_steps", 1, 1 << 20, {}),
    ("method.epsilon_exp", -30, 0, {}),
    ("method.sides", 1, 2, {}),
    ("method.directions", 1, 256, {"task.batch_rows": 512}),
    ("method.shares", 1, 256, {"method.directions": 256, "task.batch_rows": 256}),
    ("method.local_steps", 1, 64, {"steps": 128, "method.epoch_steps": 64}),
    ("method.alpha_exp", -60, 0, {}),
    ("method.quantum_exp", -40, 10, {}),
    ("method.clip", 1, 32_767, {}),
    ("schedule.weight_start", 1, 1 << 16, {}),
    ("schedule.weight_end", 0, 1 << 16, {}),
    ("steps", 1, 1 << 20, {}),
    ("staleness", 0, 64, {}),
    ("admission.pow_bits", 0, 32, {}),
    ("authors_max", 1, 1 << 16, {}),
    *DENSE_NUMBERS,
)
TEXTS: tuple[tuple[str, int, int, Data], ...] = (
    ("name", 1, 256, {}),
    ("model.id", 1, 256, {}),
    ("model.revision", 0, 256, {}),
    ("model.config.name", 1, 256, {}),
    ("model.weights.0.name", 1, 256, {}),
    ("model.tokenizer.0.name", 1, 256, {}),
    ("tensors.0.name", 1, 256, {}),
    ("task.template", 0, 4_096, {}),
    ("task.completion", 1, 4_096, CHOICE),  # 1.4.12: none for a classification only
    ("task.label_words.1", 1, 256, {}),
    ("task.data", 1, 256, {"task.data_sha256": "a" * 64}),
)
HASHES = (
    "owner",
    "model.content",
    "model.config.sha256",
    "model.config.pieces",
    "model.weights.0.sha256",
    "model.weights.0.pieces",
    "model.tokenizer.0.sha256",
    "model.tokenizer.0.pieces",
)
LISTS: tuple[tuple[str, int, int], ...] = (
    ("model.weights", 1, 1_024),
    ("model.tokenizer", 1, 64),
    ("task.label_words", 2, 256),  # 1.4.12: none for other kinds only
)
CHOICES = {
    "model.sharing": ("all", "Peers", ""),
    "tensors.0.kind": ("scalar", "Matrix", ""),
    "task.kind": ("Choice", "text"),
    "task.objective": ("f2", "Loss"),
    "method.core": ("gaussian",),
    "method.scalar": ("RAW",),
    "schedule.kind": ("cosine",),
    "admission.kind": ("closed", "Open", ""),
}
OBJECTS = ("model", "model.config", "model.weights.0", "tensors.0", "task", "method", "schedule", "admission")
_SLICED_BYTES_MAX = 16_384  # longer ones are runs of equal pieces
_FACE = "\N{GRINNING FACE}"


def base() -> Data:
    """A small valid manifest, far from every bound."""
    data = manifest_data(clip=10)
    data["tensors"] = [{"name": "a", "kind": "matrix", "rows": 24, "cols": 16}]
    data["schedule"] = {"kind": "linear", "weight_start": 5, "weight_end": 1}
    return data | {"authors_max": 4}


def changed(changes: Data) -> Data:
    """The small manifest with these paths set to other values."""
    data = base()
    for path, value in changes.items():
        holder, last = _holder(data, path)
        holder[last] = value
    return data


def _holder(data: Data, path: str) -> tuple[Any, Any]:
    """The object or list that holds the last part of ``path``, and that part."""
    *parents, last = path.split(".")
    holder: Any = data
    for part in parents:
        holder = holder[int(part)] if isinstance(holder, list) else holder[part]
    return holder, int(last) if isinstance(holder, list) else last


def canonical(data: Any) -> bytes:
    """Canonical JSON of whatever it is."""
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode("ascii")


def signed(line: bytes, signer: Signer = OWNER) -> bytes:
    """The signed form of a first line, valid or not."""
    signature = signer.sign(b"sfnode/manifest/1" + hash_fields("sfnode/run/1", line))
    return line + b"\n" + signature.hex().encode() + b"\n"


def decoded(data: bytes) -> dict[str, Any]:
    """What the reference says of these bytes."""

    def members() -> dict[str, Any]:
        manifest = decode_run_untrusted(data).manifest
        bound = {"coefficients": coefficient_count(manifest), "coefficient_max": str(coefficient_max(manifest))}
        return {"run_id": manifest.run_id.hex(), **bound}

    return judged(members)


def manifest_case(name: str, data: bytes, reason: str | None, *pieces: bytes) -> Case:
    """A case whose verdict is the one that was meant; reason ``ANY``: the specification leaves the reason open."""
    found = decoded(data)
    assert found["reason"] == reason or (reason == "ANY" and found["verdict"] == "REJECT"), (name, found)
    if reason == "ANY":
        found["reason"] = None
    held = canonical(base())
    parts = against(held, data, *pieces)
    if len(data) < _SLICED_BYTES_MAX:
        parts = min(parts, sliced(held, data), key=lambda each: len(json.dumps(each)))
    return case(name, "decode_run", {"data": parts}, found)


def manifests() -> Document:
    """manifests.json"""
    cases = [*_valid(), *_numbers(), *_texts(), *_lists(), *_structure(), *_rules(), *_bounds(), *_dense()]
    form = [manifest_case(name, data, reason, *pieces) for name, data, reason, pieces in faults_of_form(_good())]
    about = "Signed manifests, their verdicts and run ids: SPEC 1"
    return document(about, [*cases, *form], base=text(canonical(base()).decode()))


def _good() -> bytes:
    return signed(canonical(base()))


def _field(name: str, changes: Data, *pieces: bytes, is_valid: bool) -> Case:
    reason = None if is_valid else "MANIFEST_FIELD"
    return manifest_case(name, signed(canonical(changed(changes))), reason, *pieces)


# --- what is valid ------------------------------------------------------------------------------------------------


def _valid() -> Iterator[Case]:
    yield manifest_case("valid: the example of SPEC 1.2", signed(canonical(manifest_data())), None)
    yield _field("valid: the base of the cases below", {}, is_valid=True)
    odd = 'quote " backslash \\ slash / tab \t line \n \r \b \f \x00 \x1f ~ \x7f \x80 \u00e9 \u2028 \ufffd \uffff'
    yield _field("valid: text that needs every kind of escape", {"name": odd + _FACE + "\U0010ffff"}, is_valid=True)
    yield _field("valid: a model that nodes do not share", {"model.sharing": "none"}, is_valid=True)
    normalised = {"method.scalar": "normalised", "method.clip": 127, "method.directions": 2}
    yield _field("valid: normalised scalars", normalised, is_valid=True)
    rademacher = {"method.core": "rademacher", "method.directions": 4, "method.local_steps": 2}
    yield _field("valid: Rademacher cores, D = 4, K = 2", rademacher, is_valid=True)
    vector = {"tensors": [{"name": "b", "kind": "vector", "rows": 3, "cols": 0}]}
    yield _field("valid: vectors only", vector, is_valid=True)
    public = {"task.data": "file:train.jsonl", "task.data_sha256": "0123456789abcdef" * 4}
    yield _field("valid: public data", public, is_valid=True)
    yield _field("valid: constant weight, one step", {"schedule.kind": "constant", "steps": 1}, is_valid=True)
    twins = {"task.label_words": [" yes", " yes"], "tensors": [{**base()["tensors"][0], "name": n} for n in "aA"]}
    yield _field("valid: equal label words, names that differ in case", twins, is_valid=True)
    yield from _valid_tasks()


def _valid_tasks() -> Iterator[Case]:
    yield _field("valid: choices of the row's own", CHOICE, is_valid=True)
    yield from rules_of_rewards(_field)
    yield _field("valid: a completion without a prompt", {**COMPLETION, "task.template": ""}, is_valid=True)
    for objective in ("accuracy", "f1"):
        yield _field(f"valid: label words, {objective}", {"task.objective": objective}, is_valid=True)
        yield _field(f"valid: choices, {objective}", {**CHOICE, "task.objective": objective}, is_valid=True)
    for kind in ("allow-list", "invite"):
        yield _field(f"valid: {kind}", {"admission.kind": kind}, is_valid=True)
        yield _field(f"admission: {kind}, with work", {"admission.kind": kind, "admission.pow_bits": 1}, is_valid=False)
    shared = {"method.sides": 1, "method.directions": 32, "method.shares": 2}
    yield _field("valid: one side, 32 directions in 16 blocks of one row", shared, is_valid=True)


# --- bounds of every field ----------------------------------------------------------------------------------------


def _numbers() -> Iterator[Case]:
    for path, low, high, more in NUMBERS:
        for value in (low, high):
            yield _field(f"{path} = {value}", {**more, path: value}, is_valid=True)
        for value in (low - 1, high + 1):
            yield _field(f"{path} = {value}", {**more, path: value}, is_valid=False)
        yield _field(f"{path}: a boolean", {path: True}, is_valid=False)
    yield _field("steps: a fraction", {"steps": 40.0}, is_valid=False)
    yield _field("steps: text", {"steps": "40"}, is_valid=False)
    yield _field("steps: larger than 64 bits", {"steps": 1 << 64}, is_valid=False)


def _texts() -> Iterator[Case]:
    for path, low, high, more in TEXTS:
        letter = "{" if path in ("task.template", "task.completion") else "x"
        for length in (low, high, high + 1, low - 1):
            if length >= 0:
                row = {**more, path: letter * length}
                yield _field(f"{path}: {length} long", row, letter.encode(), is_valid=low <= length <= high)
        yield _field(f"{path}: a number", {path: 7}, is_valid=False)
    face = json.dumps(_FACE)[1:-1].encode()
    for length in (256, 257):  # code points, not UTF-16 units
        row = {"name": _FACE * length}
        yield _field(f"name: {length} characters above U+FFFF", row, face, is_valid=length == 256)
    for half in ("\ud83d", "\ude00", "\ude00\ud83d"):
        yield _field(f"name: {canonical(half).decode()} is no character", {"name": half}, is_valid=False)
    for path in HASHES:
        held = _value(base(), path)
        for name, value in {"upper case": held.upper(), "short": held[:-1], "long": held + "0"}.items():
            yield _field(f"{path}: {name}", {path: value if value != held else "A" * 64}, is_valid=False)
        yield _field(f"{path}: no hexadecimal", {path: "g" * 64}, is_valid=False)


def _value(data: Data, path: str) -> Any:
    holder, last = _holder(data, path)
    return holder[last]


def _lists() -> Iterator[Case]:
    for path, low, high in LISTS:
        item = _value(base(), path)[0]
        for length in (low - 1, low, high, high + 1):
            row, piece = {path: [item] * length}, canonical(item) + b","
            yield _field(f"{path}: {length} of them", row, piece, is_valid=low <= length <= high)
        yield _field(f"{path}: an object", {path: {}}, is_valid=False)
    yield _field("tensors: none", {"tensors": []}, is_valid=False)
    tensor = base()["tensors"][0]
    yield _field("tensors: 8193 of them", {"tensors": [tensor] * 8_193}, canonical(tensor) + b",", is_valid=False)


def _structure() -> Iterator[Case]:
    """Missing, unknown and mistaken fields at every level."""
    for path in _paths(base()):
        data = copy.deepcopy(base())
        holder, last = _holder(data, path)
        del holder[last]
        yield manifest_case(f"{path}: missing", signed(canonical(data)), "MANIFEST_FIELD")
    for path in ("", *OBJECTS):
        yield _field(f"{path or 'the document'}: an unknown field", {f"{path}.extra".strip("."): 0}, is_valid=False)
    for path in OBJECTS:
        yield _field(f"{path}: a list", {path: []}, is_valid=False)
    for path, values in CHOICES.items():
        for value in values:
            yield _field(f"{path}: {value!r}", {path: value}, is_valid=False)
    contents: Data = {"null": None, "a list": [], "text": "manifest", "a number": 1}
    for name, content in contents.items():
        yield manifest_case(f"the document: {name}", signed(canonical(content)), "MANIFEST_FIELD")


def _paths(data: Any, path: str = "") -> Iterator[str]:
    """Paths of all fields of objects; in lists the first entry stands for all."""
    for key, value in data.items():
        here = f"{path}.{key}".strip(".")
        yield here
        if isinstance(value, dict):
            yield from _paths(value, here)
        elif isinstance(value, list) and isinstance(value[0], dict):
            yield from _paths(value[0], f"{here}.0")


# --- rules between fields (SPEC 1.4) ------------------------------------------------------------------------------


def _rules() -> Iterator[Case]:
    for number, name, changes in _broken_rules():
        yield _field(f"rule 1.4.{number}: {name}", changes, is_valid=False)


def _broken_rules() -> Iterator[tuple[int, str, Data]]:
    tensor = base()["tensors"][0]
    yield 1, "owner of small order", {"owner": "01" + "00" * 31}
    yield 1, "owner that is no point", {"owner": "02" + "00" * 31}
    yield 1, "upper case in data_sha256", {"task.data": "x", "task.data_sha256": "A" * 64}
    yield 1, "short data_sha256", {"task.data": "x", "task.data_sha256": "a" * 63}
    for file in (".", "..", "a/b", "/", "..\\b", "c:x", "a\0"):
        yield 2, f"weights file {file!r}", {"model.weights.0.name": file}
    yield 2, "config file '../x'", {"model.config.name": "../x"}
    yield 2, "tokenizer file '../x'", {"model.tokenizer.0.name": "../x"}
    yield 3, "two tensors of one name", {"tensors": [tensor, {**tensor, "rows": 3}]}
    yield 3, "matrix without columns", {"tensors.0.cols": 0}
    yield 3, "transposed matrix without columns", {**DENSE, "tensors.0.kind": "transposed", "tensors.0.cols": 0}
    yield 3, "vector with columns", {"tensors.0.kind": "vector"}
    for rank in (3, 6, 127):
        yield 4, f"rank {rank}", {"method.rank": rank}
    many = {"method.directions": 32, "method.local_steps": 33, "task.batch_rows": 32}
    yield 5, "D x K = 1056", {**many, "steps": 33, "method.epoch_steps": 33}
    yield 5, "steps no multiple of K", {"method.local_steps": 16}
    yield 5, "epoch_steps no multiple of K", {"method.local_steps": 5}
    yield 5, "B no multiple of D", {"method.directions": 3}
    yield 5, "D no multiple of shares", {"method.directions": 4, "method.shares": 3}
    yield 5, "shares above D", {"method.shares": 2}
    yield 5, "B x shares no multiple of D", {"method.directions": 64, "method.shares": 2}
    yield 6, "normalised with one direction", {"method.scalar": "normalised", "method.clip": 127}
    yield 6, "normalised with clip 126", {"method.scalar": "normalised", "method.clip": 126, "method.directions": 2}
    for name, digest in {"without a hash": "", "with a short hash": "a" * 63, "with upper case": "A" * 64}.items():
        yield 7, f"a dense core {name}", {**DENSE, "method.basis_sha256": digest}
    yield 7, "a hash without a dense core", {"method.basis_sha256": "a" * 64}
    yield 8, "private data with a hash", {"task.data_sha256": "a" * 64}
    yield 8, "public data without a hash", {"task.data": "file:x"}
    yield 12, "classification with a completion", {"task.completion": "x"}
    yield 12, "classification without label words", {"task.label_words": []}
    yield 12, "choice with label words", {**CHOICE, "task.label_words": [" no", " yes"]}
    yield 12, "choice without a completion", {**CHOICE, "task.completion": ""}
    yield 12, "completion with a label word", {**COMPLETION, "task.label_words": [" no"]}
    yield 12, "completion without a completion", {**COMPLETION, "task.completion": ""}
    for objective in ("accuracy", "f1"):
        yield 12, f"completion, {objective}", {**COMPLETION, "task.objective": objective}
        yield 12, f"reward, {objective}", {**REWARD, "task.objective": objective}
    yield 12, "reward with a label word", {**REWARD, "task.label_words": [" no"]}
    yield 12, "reward without a rule", {**REWARD, "task.completion": "{answer}"}
    task = {path: value for path, value in REWARD.items() if path.startswith("task.")}
    yield 12, "reward with canonical cores", {**task, "method.directions": 64}
    yield 12, "reward with fewer answers than samples", {**REWARD, "method.directions": 7, "task.batch_rows": 7}


def _bounds() -> Iterator[Case]:
    """1.4.5, 1.4.10 and 1.4.11 at their limits."""
    wide = {"task.batch_rows": 256, "method.directions": 256, "method.clip": 1}
    for local_steps in (4, 8):
        row = {**wide, "method.local_steps": local_steps}
        yield _field(f"rule 1.4.5: D x K = {256 * local_steps}", row, is_valid=local_steps == 4)
    matrix = {"method.rank": 128, "method.epoch_steps": 1, "authors_max": 1}
    for steps in (4_096, 4_097):
        yield _field(f"rule 1.4.10: {steps} x 2^14", {**matrix, "steps": steps}, is_valid=steps == 4_096)
    largest: Data = {"method.rank": 1, "method.epoch_steps": 1 << 20, "steps": 1 << 20, "authors_max": 1 << 16}
    for clip in (1, 2):  # 2^16 x 2^20 x clip x 2^16
        row = {**largest, "method.clip": clip, "schedule.weight_end": 1 << 16}
        yield _field(f"rule 1.4.11: r = 1, C_max = {clip} x 2^52", row, is_valid=clip == 1)
    short = {**largest, "steps": 1 << 19, "method.clip": 2, "schedule.weight_start": 1 << 16}
    yield _field("rule 1.4.11: a run shorter than its epoch", short, is_valid=True)
    for authors in (1, 2):  # 2^14 x authors x 256 x 32767 x 2^16
        row = {**wide, **matrix, "method.clip": 32_767, "schedule.weight_start": 1 << 16, "authors_max": authors}
        yield _field(f"rule 1.4.11: r = 128, {authors} x 256 x 32767 x 2^16", row, is_valid=authors == 1)
    normalised = {"method.scalar": "normalised", "method.clip": 127, **largest, "schedule.weight_start": 1}
    for weight in (1_985, 1_986):  # 2^36 x 66 x weight: 2^53 / (2^37 x 33) = 1985.9...
        row = {**normalised, "method.directions": 2, "schedule.weight_end": weight}
        yield _field(f"rule 1.4.11: normalised, 33 x 2 x {weight} x 2^36", row, is_valid=weight == 1_985)
    yield from _work_bounds()


def _dense() -> Iterator[Case]:
    for name, changes, is_valid in dense_rows(base()["tensors"][0]):
        yield _field(name, changes, is_valid=is_valid)


def _work_bounds() -> Iterator[Case]:
    """1.4.13 at its limits: what one update makes a node compute."""
    most: Data = {"task.batch_rows": 256, "method.directions": 256, "method.local_steps": 4, "method.clip": 1}
    for core, rank, tensors in (("canonical", 64, 1_024), ("rademacher", 128, 64)):
        for count in (tensors, tensors + 1):
            rows = [{"name": str(number), "kind": "vector", "rows": 1, "cols": 0} for number in range(count)]
            row = {**most, "method.core": core, "method.rank": rank, "tensors": rows}
            yield _field(f"rule 1.4.13: {core}, r = {rank}, {count} x 2^10", row, is_valid=count == tensors)
