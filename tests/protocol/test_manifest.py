"""The manifest: one canonical form, every rule refused with its field named, every change of a byte refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from protocol import limits
from protocol.crypto.keys import Signer
from protocol.errors import Reject, RejectReason
from protocol.run.manifest import (
    SignedManifest,
    basis_bytes,
    checked,
    coefficient_count,
    coefficient_max,
    core_sizes,
    decode_run_untrusted,
    sign_manifest,
    view_max,
)
from protocol.schema import to_plain
from tests.support.manifests import OWNER, manifest_data, small_manifest

RUN_ID = "2096198bcf7484510b91f66b16ac1ae5d7b454e3799df0c33abc4c715681aec5"


def changed(path: str, value: Any) -> dict[str, Any]:
    """Plain data of the small manifest with one field replaced; dots and numbers lead into it."""
    data: dict[str, Any] = json.loads(small_manifest().canonical)
    *parents, last = (int(part) if part.isdigit() else part for part in path.split("."))
    target: Any = data
    for parent in parents:
        target = target[parent]
    target[last] = value
    return data


def check_refused(data: object, reason: RejectReason, text: str) -> None:
    with pytest.raises(Reject) as caught:
        checked(data)
    assert caught.value.reason is reason
    assert text in str(caught.value)


def check_bytes_refused(data: bytes, reason: RejectReason) -> None:
    with pytest.raises(Reject) as caught:
        decode_run_untrusted(data)
    assert caught.value.reason is reason


def test_manifest__signed_and_read_back__is_equal() -> None:
    signed = sign_manifest(small_manifest(), OWNER)
    assert decode_run_untrusted(signed.encode()) == signed
    assert signed.manifest.run_id.hex() == RUN_ID
    assert checked(to_plain(signed.manifest, as_rows=False)) == signed.manifest


def test_manifest__text_of_other_alphabets__canonical_form_is_ascii() -> None:
    data = changed("name", 'grüße "\\\n\x7f 漢字 🎈')
    signed = sign_manifest(checked(data), OWNER)
    assert rb'"gr\u00fc\u00dfe \"\\\n\u007f \u6f22\u5b57 \ud83c\udf88"' in signed.manifest.canonical
    assert decode_run_untrusted(signed.encode()) == signed


BROKEN_FIELDS = [
    ("name", "", "manifest.name"),
    ("name", "x" * 257, "manifest.name"),
    ("name", 5, "manifest.name"),
    ("name", "a\ud800b", "surrogate"),
    ("owner", "0" * 64, "owner"),
    ("owner", "A" * 64, "owner"),
    ("owner", "ab", "manifest.owner"),
    ("model.id", None, "manifest.model.id"),
    ("model.weights", [], "manifest.model.weights"),
    ("model.content", "Z" * 64, "model"),
    ("model.config.bytes", -1, "manifest.model.config.bytes"),
    ("model.config.name", "../config.json", "model: a file name"),
    ("model.weights.0.pieces", "Z" * 64, "model"),
    ("model.sharing", "friends", "manifest.model.sharing"),
    ("model.weights.0.sha256", "Z" * 64, "model"),
    ("model.tokenizer.0.name", "../../.ssh/id", "model: a file name"),
    ("model.tokenizer.0.name", "..", "model: a file name"),
    ("model.weights.0.name", "C:\\x", "model: a file name"),
    ("tensors", [], "manifest.tensors"),
    ("tensors.0.name", "b.weight", "tensors: a name is listed twice"),
    ("tensors.0.kind", "cube", "manifest.tensors[0].kind"),
    ("tensors.0.kind", "transposed", "tensors: only one with a dense core"),
    ("tensors.0.rows", 0, "manifest.tensors[0].rows"),
    ("tensors.0.cols", 0, "tensors: cols"),
    ("tensors.1.cols", 4, "tensors: cols"),
    ("task.kind", "cloze", "manifest.task.kind"),
    ("task.kind", "choice", "task.label_words"),
    ("task.template", "x" * 4_097, "manifest.task.template"),
    ("task.completion", "x", "task.completion"),
    ("task.label_words", ["one"], "task.label_words"),
    ("task.label_words", [], "task.label_words"),
    ("task.label_words", ["x"] * 257, "manifest.task.label_words"),
    ("task.objective", "margin", "manifest.task.objective"),
    ("task.label_words.0", "", "manifest.task.label_words[0]"),
    ("task.data", "file:x", "task.data_sha256"),
    ("task.data_sha256", "0" * 64, "task.data_sha256"),
    ("task.max_tokens", 3, "manifest.task.max_tokens"),
    ("task.batch_rows", 0, "manifest.task.batch_rows"),
    ("method.rank", 12, "method.rank"),
    ("method.rank", 256, "manifest.method.rank"),
    ("method.epoch_steps", 0, "manifest.method.epoch_steps"),
    ("method.basis", "random", "unknown field 'basis'"),
    ("method.basis_sha256", "0" * 65, "manifest.method.basis_sha256"),
    ("method.sides", 3, "manifest.method.sides"),
    ("method.shares", 2, "method.shares"),
    ("method.shares", 0, "manifest.method.shares"),
    ("method.basis_sha256", "0" * 64, "method.basis_sha256"),
    ("method.core", "gaussian", "manifest.method.core"),
    ("method.core", "dense", "method.basis_sha256"),
    ("method.core_rows", 1, "method.core_rows"),
    ("method.noise_rows", 1, "method.core_rows"),
    ("method.energy_max", 1, "method.core_rows"),
    ("method.scalar", "float", "manifest.method.scalar"),
    ("method.epsilon_exp", 1, "manifest.method.epsilon_exp"),
    ("method.epsilon_exp", -10.0, "manifest.method.epsilon_exp"),
    ("method.directions", True, "manifest.method.directions"),
    ("method.directions", 3, "task.batch_rows"),
    ("method.local_steps", 65, "manifest.method.local_steps"),
    ("method.local_steps", 3, "steps: not a multiple"),
    ("method.alpha_exp", -61, "manifest.method.alpha_exp"),
    ("method.quantum_exp", 11, "manifest.method.quantum_exp"),
    ("method.clip", 0, "manifest.method.clip"),
    ("method.clip", 1 << 15, "manifest.method.clip"),
    ("schedule.kind", "cosine", "manifest.schedule.kind"),
    ("schedule.weight_start", 0, "manifest.schedule.weight_start"),
    ("schedule.weight_end", -1, "manifest.schedule.weight_end"),
    ("steps", 0, "manifest.steps"),
    ("steps", (1 << 20) + 1, "manifest.steps"),
    ("staleness", 65, "manifest.staleness"),
    ("admission", "open", "manifest.admission"),
    ("admission.kind", "closed", "manifest.admission.kind"),
    ("admission.pow_bits", 33, "manifest.admission.pow_bits"),
    ("admission.pow_bits", True, "manifest.admission.pow_bits"),
    ("admission", {"kind": "invite", "pow_bits": 1}, "admission.pow_bits"),
    ("admission", {"kind": "allow-list", "pow_bits": 1}, "admission.pow_bits"),
    ("authors_max", 0, "manifest.authors_max"),
    ("extra", 1, "unknown field 'extra'"),
    ("method.extra", 1, "unknown field 'extra'"),
    ("format", "1", "manifest.format"),
]


@pytest.mark.parametrize(("path", "value", "text"), BROKEN_FIELDS, ids=[f"{p}={v!r:.12}" for p, v, _ in BROKEN_FIELDS])
def test_manifest__one_field_broken__is_refused_by_name(path: str, value: Any, text: str) -> None:
    check_refused(changed(path, value), RejectReason.MANIFEST_FIELD, text)


@pytest.mark.parametrize(
    ("method", "text"),
    [
        ({"scalar": "normalised", "clip": 127}, "method.directions"),
        ({"scalar": "normalised", "directions": 2, "clip": 126}, "method.clip"),
        ({"directions": 256, "local_steps": 8}, "directions x local_steps"),
        ({"epoch_steps": 15, "local_steps": 2}, "method.epoch_steps"),
        ({"directions": 8, "shares": 3}, "method.shares"),
        ({"directions": 64, "shares": 2}, "task.batch_rows"),
        ({"core": "dense", "basis_sha256": "A" * 64}, "method.basis_sha256"),
        ({"core": "dense", "basis_sha256": ""}, "method.basis_sha256"),
        ({"basis_sha256": "a" * 64}, "method.basis_sha256"),
    ],
)
def test_manifest__fields_that_do_not_fit_together__are_refused(method: dict[str, Any], text: str) -> None:
    check_refused(manifest_data(**method), RejectReason.MANIFEST_FIELD, text)


def test_manifest__any_field_missing__is_refused_by_name() -> None:
    def missing_one(data: Any) -> list[tuple[str, Any]]:
        found = []
        for key in data:
            found.append((key, {name: value for name, value in data.items() if name != key}))
            if isinstance(data[key], dict):
                found.extend((name, {**data, key: inner}) for name, inner in missing_one(data[key]))
        return found

    cases = missing_one(manifest_data())
    assert len(cases) == 53
    for name, data in cases:
        check_refused(data, RejectReason.MANIFEST_FIELD, f"field '{name}' is missing")


@pytest.mark.parametrize("data", [None, [], 5, "x", [1] * 13, {}])
def test_manifest__not_an_object__is_refused(data: object) -> None:
    check_refused(data, RejectReason.MANIFEST_FIELD, "manifest")


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4, 5, 7, -1, 10**30])
def test_manifest__other_format__says_to_install_another_release(version: int) -> None:
    check_refused(changed("format", version), RejectReason.MANIFEST_FORMAT, "install a release")


def test_manifest__more_coefficients_than_memory__is_refused() -> None:
    data = manifest_data(epoch_steps=1, rank=128, clip=1, alpha_exp=0)
    data["schedule"] = {"kind": "constant", "weight_start": 1, "weight_end": 1}
    data["authors_max"] = 1
    per_step = 2 * 128**2 + 128
    most = limits.COEFFICIENTS_MAX // per_step
    assert coefficient_count(checked({**data, "steps": most})) == most * per_step
    check_refused({**data, "steps": most + 1}, RejectReason.MANIFEST_FIELD, "coefficients in all epochs")


CHOICE = {"kind": "choice", "label_words": [], "completion": " {choice}"}
COMPLETION = {"kind": "completion", "label_words": [], "completion": "{text}"}


def with_task(task: dict[str, Any]) -> dict[str, Any]:
    """Plain data of the small manifest with parts of its task replaced."""
    data = manifest_data()
    return {**data, "task": {**data["task"], **task}}


@pytest.mark.parametrize(
    "task",
    [
        {"objective": "f1"},
        {"template": ""},
        CHOICE,
        {**CHOICE, "objective": "accuracy"},
        {**COMPLETION, "template": ""},
    ],
)
def test_manifest__task_of_any_kind__is_valid(task: dict[str, Any]) -> None:
    manifest = checked(with_task(task))
    assert decode_run_untrusted(sign_manifest(manifest, OWNER).encode()).manifest == manifest


@pytest.mark.parametrize(
    ("task", "text"),
    [
        ({**CHOICE, "completion": ""}, "task.completion"),
        ({**CHOICE, "label_words": [" a", " b"]}, "task.label_words"),
        ({**COMPLETION, "label_words": [" a"]}, "task.label_words"),
        ({**COMPLETION, "objective": "accuracy"}, "task.objective"),
    ],
)
def test_manifest__task_of_mixed_kinds__is_refused(task: dict[str, Any], text: str) -> None:
    check_refused(with_task(task), RejectReason.MANIFEST_FIELD, text)


def test_manifest__file_of_a_basis_too_large_to_serve__is_refused() -> None:
    cols = (1 << 24) - 19  # 19 + 2 x 15 x rows + cols
    largest = {"name": "a", "kind": "matrix", "rows": 1 << 23, "cols": cols}
    data = manifest_data(core="dense", rank=1, core_rows=15, tensors=[largest])
    assert basis_bytes(checked(data)) == limits.BASIS_BYTES_MAX
    above = [{**largest, "cols": cols + 1}]
    check_refused({**data, "tensors": above}, RejectReason.MANIFEST_FIELD, "the basis's file would exceed")
    checked(manifest_data(tensors=above, rank=1))


@pytest.mark.parametrize("task", [CHOICE, COMPLETION, {"label_words": [" no", " yes"]}])
def test_manifest__dense_core__has_rows_for_any_task(task: dict[str, Any]) -> None:
    data = manifest_data(core="dense", core_rows=16)
    manifest = checked({**data, "task": data["task"] | task})
    assert decode_run_untrusted(sign_manifest(manifest, OWNER).encode()).manifest == manifest


def test_manifest__transposed_tensor__has_its_columns_as_outputs() -> None:
    turned = {"name": "a", "kind": "transposed", "rows": 5, "cols": 24}
    matrix = {"name": "b", "kind": "matrix", "rows": 24, "cols": 7}
    manifest = small_manifest(core="dense", tensors=[turned, matrix])
    assert basis_bytes(manifest) == basis_bytes(small_manifest(core="dense", tensors=[matrix, turned]))
    assert basis_bytes(manifest) == 16 + 5 + 3 * 2 * 24 + 4 * (5 + 7)


# --- dense cores


def test_manifest__dense_core__is_valid_and_counts_a_number_for_each_coordinate_and_the_rows() -> None:
    manifest = small_manifest(core="dense")
    assert decode_run_untrusted(sign_manifest(manifest, OWNER).encode()).manifest == manifest
    assert core_sizes(manifest) == [8, 8] and manifest.numbers == 17
    assert coefficient_count(manifest) == 17 * 40
    assert coefficient_max(manifest) == 1_024 * 16 * 127  # all authors, all rows: the weight is not in the sums
    assert view_max(manifest) == 40 * 500 * 127 * 2 * 4 * 127**2
    assert basis_bytes(manifest) == 16 + 5 + 3 * 2 * 24 + 4 * (16 + 16)


BROKEN_DENSE: list[tuple[dict[str, Any], str]] = [
    *(({name: 0}, "method.core_rows, method.noise_rows") for name in ("core_rows", "noise_rows", "energy_max")),
    ({"core_rows": -1}, "manifest.method.core_rows"),
    ({"core_rows": limits.RANK_MAX + 1}, "manifest.method.core_rows"),
    ({"noise_rows": limits.NOISE_ROWS_MAX + 1}, "manifest.method.noise_rows"),
    ({"energy_max": limits.ENERGY_MAX + 1}, "manifest.method.energy_max"),
    ({"scalar": "normalised"}, "dense cores need"),
    ({"epsilon_exp": -1}, "dense cores need"),
    ({"sides": 2}, "dense cores need"),
    ({"shares": 2}, "dense cores need"),
    ({"local_steps": 2, "epoch_steps": 2}, "dense cores need"),
    ({"epoch_steps": 2}, "dense cores need"),
    *(({"clip": clip}, "method.clip: 1, 7 or 127") for clip in (2, 3, 6, 8, 15, 63, 126, 128)),
    ({"task": manifest_data()["task"] | {"batch_rows": 32, "label_words": [" 0", " 1", " 2"]}}, "task.batch_rows"),
    ({"tensors": manifest_data()["tensors"]}, "a vector is listed"),
    ({"tensors": manifest_data()["tensors"][::2]}, "as many outputs"),  # 24 x 16 and 16 x 24
    ({"task": manifest_data()["task"] | {"objective": "accuracy"}}, "task.objective: must be loss"),
]


@pytest.mark.parametrize(("fields", "text"), BROKEN_DENSE, ids=[str(fields)[:40] for fields, _ in BROKEN_DENSE])
def test_manifest__dense_core_breaks_a_rule__is_refused_by_name(fields: dict[str, Any], text: str) -> None:
    check_refused(manifest_data(core="dense", **fields), RejectReason.MANIFEST_FIELD, text)


def test_manifest__dense_message_of_more_numbers_than_a_frame_should_hold__is_refused() -> None:
    tensor = {"kind": "matrix", "rows": 128, "cols": 128}
    tensors = [{**tensor, "name": str(number)} for number in range(129)]
    most = manifest_data(core="dense", rank=1, core_rows=127, tensors=tensors)  # 1 + 127 x 129
    assert checked(most).numbers == limits.DENSE_NUMBERS_MAX
    assert checked(most | {"method": most["method"] | {"clip": 1, "energy_max": 1}}).numbers == limits.DENSE_NUMBERS_MAX
    one_more = manifest_data(core="dense", rank=128, core_rows=128, tensors=tensors[:1])
    check_refused(one_more, RejectReason.MANIFEST_FIELD, "16385 numbers in a dense message")


def test_manifest__dense_view_of_all_steps__stays_exact() -> None:
    """1.4.11: the steps' quotients add up in one basis, so all of them count, and authors do not."""
    data = manifest_data(core="dense", rank=1, core_rows=1, authors_max=1 << 16)
    data["schedule"] = {"kind": "linear", "weight_start": 1, "weight_end": 1 << 16}
    checked({**data, "steps": 67_096})  # x 2^16 x 127^3 < 2^53
    check_refused({**data, "steps": 67_097}, RejectReason.MANIFEST_FIELD, "takes 54 bits")


# --- bytes


def test_manifest__any_byte_changed__is_refused_without_another_exception() -> None:
    encoded = sign_manifest(small_manifest(), OWNER).encode()
    reasons = set()
    for index in range(len(encoded)):
        for flipped in (0x01, 0x20, 0x80):
            with pytest.raises(Reject) as caught:
                decode_run_untrusted(encoded[:index] + bytes([encoded[index] ^ flipped]) + encoded[index + 1 :])
            reasons.add(caught.value.reason)
    assert reasons == {RejectReason.MANIFEST_FORMAT, RejectReason.MANIFEST_FIELD, RejectReason.MANIFEST_SIGNATURE}


def test_manifest__cut_anywhere__is_refused() -> None:
    encoded = sign_manifest(small_manifest(), OWNER).encode()
    for length in range(0, len(encoded), 7):
        check_bytes_refused(encoded[:length], RejectReason.MANIFEST_FORMAT)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"steps":40', b'"steps": 40'),
        (b'"steps":40', b'"steps":40,"steps":40'),
        (b'"name":"test"', b'"name":"\\u0074est"'),
        (b'{"admission":{"kind":"open","pow_bits":0}', b'{"admission":{"pow_bits":0,"kind":"open"}'),
    ],
)
def test_manifest__same_meaning_in_other_bytes__is_refused(old: bytes, new: bytes) -> None:
    encoded = sign_manifest(small_manifest(), OWNER).encode()
    assert encoded.count(old) == 1
    check_bytes_refused(encoded.replace(old, new), RejectReason.MANIFEST_FORMAT)


@pytest.mark.parametrize("line", [b"", b"[" * 100_000, b"9" * 5_000, b"\xff\xfe{}", b"NaN", b'{"format":1e400}'])
def test_manifest__first_line_is_hostile__is_refused(line: bytes) -> None:
    with pytest.raises(Reject) as caught:
        decode_run_untrusted(line + b"\n" + b"0" * 128 + b"\n")
    assert caught.value.reason in (RejectReason.MANIFEST_FORMAT, RejectReason.MANIFEST_FIELD)


def test_manifest__too_large__is_refused_before_it_is_read() -> None:
    check_bytes_refused(b"x" * (limits.MANIFEST_BYTES_MAX + 1), RejectReason.SIZE)


def test_manifest__signed_by_another_key__is_refused() -> None:
    manifest = small_manifest()
    other = Signer(b"other".ljust(32, b"."))
    signature = other.sign(b"sfnode/manifest/1" + manifest.run_id)
    check_bytes_refused(
        SignedManifest(manifest=manifest, signature=signature).encode(), RejectReason.MANIFEST_SIGNATURE
    )


def test_manifest__signature_in_upper_case__is_refused() -> None:
    json_line, signature, _ = sign_manifest(small_manifest(), OWNER).encode().split(b"\n")
    check_bytes_refused(b"\n".join((json_line, signature.upper(), b"")), RejectReason.MANIFEST_FORMAT)
