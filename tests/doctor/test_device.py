"""Whether the weights can be quantised is a question of what is installed, whatever this process has imported."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sfnode.doctor import model_check
from sfnode.doctor.findings import Verdict
from sfnode.doctor.model_check import check_device
from sfnode.worker_protocol import DeviceReport

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


@pytest.mark.parametrize(("device", "verdict"), [("auto", Verdict.WARNING), ("cpu", Verdict.OK)])
def test_doctor__card_that_this_build_of_torch_does_not_use__is_named_unless_the_operator_chose(
    device: str, verdict: Verdict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "version").touch()
    monkeypatch.setattr(model_check, "_NVIDIA", tmp_path / "version")
    finding = check_device(DEVICES, device, "fp32")
    assert finding.verdict is verdict
    assert ("docs/install.md" in finding.advice) == (verdict is Verdict.WARNING)
