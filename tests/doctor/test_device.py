"""Whether the weights can be quantised is a question of what is installed, whatever this process has imported."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sfnode.doctor import model_check
from sfnode.doctor.findings import Verdict
from sfnode.doctor.model_check import check_device, describe_speeds
from sfnode.training.devices import product_speeds
from sfnode.worker_protocol import DeviceOptions, DeviceReport, ProductSpeed
from tests.support.manifests import small_manifest

DEVICES = DeviceReport(torch="2.13.0", threads=1, cuda=(), mps=False)


def test_doctor__library_that_is_hidden_from_transformers__is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torchao").mkdir()
    (tmp_path / "torchao" / "__init__.py").touch()
    monkeypatch.setitem(sys.modules, "torchao", None)  # as `sfnode.training` does when it is imported
    with monkeypatch.context() as patched:
        patched.setattr(sys, "path", [str(tmp_path)])
        assert check_device(DEVICES, "cpu", "int8").verdict is Verdict.OK
        patched.setattr(sys, "path", [])
        missing = check_device(DEVICES, "cpu", "int8")
    assert missing.verdict is Verdict.FAIL and "torchao is not installed" in missing.text


def test_doctor__processor_without_instructions_for_16_bits__shows_that_products_are_made_in_fp32() -> None:
    speeds = (
        ProductSpeed(dtype="fp32", gflops=90.2, in_fp32=None, is_widened=False),
        ProductSpeed(dtype="bf16", gflops=13.4, in_fp32=86.9, is_widened=True),
        ProductSpeed(dtype="fp16", gflops=99.0, in_fp32=86.9, is_widened=False),
    )
    finding = describe_speeds(replace(DEVICES, speeds=speeds))
    assert finding is not None and finding.verdict is Verdict.OK
    assert finding.text.endswith("256 tokens: fp32 90, bf16 13 (in fp32 87, taken), fp16 99 (in fp32 87)")
    assert describe_speeds(DEVICES) is describe_speeds("torch cannot be asked") is None


def test_product_speeds__of_this_processor__have_a_row_for_each_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfnode.training.model.quantised._LIBRARY", "no_such_library")  # torchao is not installed
    monkeypatch.setattr("sfnode.training.model.wide_products.rows_to_widen", lambda dtype, *_: 4)
    monkeypatch.setattr("sfnode.training.model.wide_products.product_seconds", lambda _rows, weight: (0.5, 0.1))
    speeds = list(product_speeds())
    assert [each.dtype for each in speeds] == ["fp32", "bf16", "fp16"]
    assert [round(each.gflops, 3) for each in speeds] == [round(2 * 256 * 576 * 1_536 / 0.5e9, 3)] * 3


def test_precision__auto__is_bf16_and_fp32_for_a_small_model() -> None:
    model = small_manifest().model
    (file,) = model.weights
    large = replace(model, weights=(replace(file, bytes=40 << 20), replace(file, bytes=24 << 20)))
    assert [DeviceOptions().precision(each.weight_bytes) for each in (model, large)] == ["fp32", "bf16"]
    assert DeviceOptions(dtype="int8").precision(model.weight_bytes) == "int8"


@pytest.mark.parametrize(("device", "verdict"), [("auto", Verdict.WARNING), ("cpu", Verdict.OK)])
def test_doctor__card_that_this_build_of_torch_does_not_use__is_named_unless_the_operator_chose(
    device: str, verdict: Verdict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "version").touch()
    monkeypatch.setattr(model_check, "_NVIDIA", tmp_path / "version")
    finding = check_device(DEVICES, device, "fp32")
    assert finding.verdict is verdict
    assert ("docs/install.md" in finding.advice) == (verdict is Verdict.WARNING)
