"""An intact log whose run was made with another release: its basis has another length, and nobody must get it again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from protocol import limits
from protocol.run.manifest import sign_manifest
from tests.storage.test_log_export_import import dense_run, log_of
from tests.support.cli_calls import call
from tests.support.ledgers import seal
from tests.support.manifests import OWNER


@pytest.mark.parametrize(
    "other",
    [lambda basis: basis[:-10], lambda basis: basis + bytes(400), lambda basis: bytes(9) + basis[9:]],
    ids=["shorter", "longer", "another magic"],
)
def test_log_import__basis_of_another_release__says_so(
    other: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LOG_BLOCK_BYTES_MAX", 150)
    signed, basis = dense_run()
    made = other(basis)
    method = replace(signed.manifest.method, basis_sha256=hashlib.sha256(made).hexdigest())
    manifest = replace(signed.manifest, method=method)
    log = tmp_path / "x.log"
    log.write_bytes(log_of([seal(manifest, 1, 2)], sign_manifest(manifest, OWNER), made))
    said = call("log", "import", log, "--data-dir", tmp_path / "copy")
    assert said.code == 1 and "was made with another release of sfnode" in said.stderr
    assert "Get the file again" not in said.stderr and not (tmp_path / "copy").exists()
