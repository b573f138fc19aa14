"""Text and files that come from a stranger: they name no folder, move no cursor, and bring no code along."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from manifests import small_manifest
from protocol.errors import OperatorError
from sfnode import demo
from sfnode.cli.run import folder_name
from sfnode.report import Reporter, printable
from sfnode.training.models import check_model, describe_model, load_causal_lm, resolve_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder of its own with the embedded model."""
    return Path(shutil.copytree(demo.model_folder("tiny-opt"), tmp_path / "model"))


def set_config(folder: Path, **fields: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@pytest.mark.parametrize("name", ["/etc/cron.d", "../../.ssh", "..", ".hidden", "a/b", "x\0y", "\x1b[2J", "ключ", ""])
def test_folder_name__run_named_by_a_stranger__stays_one_folder_below_home(name: str) -> None:
    """A fault once: a run's name went into the path as it was, and a bootstrap decides what the run is called."""
    found = folder_name(replace(small_manifest(), name=name))
    assert Path("home", found).resolve().parent == Path("home").resolve()
    assert found.isascii() and not found.startswith((".", "-"))


def test_folder_name__usual_name__is_kept() -> None:
    manifest = replace(small_manifest(), name="sst2_opt-1.3b")
    assert folder_name(manifest) == f"sst2_opt-1.3b-{manifest.run_id.hex()[:12]}"


def test_printable__escape_sequences_new_lines_and_direction_marks__are_shown_not_obeyed() -> None:
    assert printable("\x1b[2Jbye\nError: x\u202e") == "\\x1b[2Jbye\\nError: x\\u202e"
    assert printable("déjà vu, 訓練") == "déjà vu, 訓練"


def test_reporter__reason_of_a_peer_with_an_escape_sequence__leaves_the_terminal_alone() -> None:
    stream = io.StringIO()
    reporter = Reporter(is_json=False, stream=stream)
    reporter.event("peer_left", f"peer X left: {chr(27) + '[31m' + chr(10) + 'forged'}", "second line of ours")
    assert stream.getvalue() == "peer X left: \\x1b[31m\\nforged\nsecond line of ours\n"


def test_model__index_names_a_pickle__is_refused(model: Path) -> None:
    """A fault once: transformers read it with its unpickler, although only safetensors were promised."""
    shutil.move(model / "model.safetensors", model / "weights.bin")
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "weights.bin"}}))
    with pytest.raises(OperatorError, match=r"weights\.bin.*no safetensors file"):
        describe_model(resolve_model(str(model)))


def test_model__tokenizer_file_that_the_run_does_not_name__is_refused(model: Path) -> None:
    """A fault once: a hub could add one and so change the tokenizer without changing any hash."""
    spec = describe_model(resolve_model(str(model)))
    check_model(model, spec)
    (model / "added_tokens.json").write_text('{"yes": 7}')
    with pytest.raises(OperatorError, match=r"added_tokens\.json.*remove it"):
        check_model(model, spec)


@pytest.mark.parametrize(
    "fields",
    [{"attn_implementation": "someone/kernel"}, {"_attn_implementation": "a/b"}],
)
def test_model__config_asks_for_code_from_elsewhere__is_refused(model: Path, fields: dict[str, object]) -> None:
    import torch

    set_config(model, **fields)
    with pytest.raises(OperatorError, match="code from elsewhere"):
        load_causal_lm(model, torch.device("cpu"), torch.float32)


def test_model__config_asks_for_a_package_that_is_missing__ends_in_a_clear_error(model: Path) -> None:
    import torch

    set_config(model, quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True})
    with pytest.raises(OperatorError, match="cannot be loaded"):
        load_causal_lm(model, torch.device("cpu"), torch.float32)
