"""The exported folder is the exact view of the state, loads without sfnode, and is written whole or not at all."""

from __future__ import annotations

import json
import os
import resource
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from protocol.errors import OperatorError
from protocol.state import Coefficients
from protocol.subspace.basis_file import Bases
from sfnode.model_files.model_folder import ModelFolder
from sfnode.training.export.adapter import export_adapter
from sfnode.training.export.hugging_face_folder import check_free, export_model, fresh_folder
from sfnode.training.model.folding import fold_weights
from sfnode.training.model.loading import load_causal_lm
from sfnode.training.model.tensor_groups import TensorGroup
from sfnode.training.model.weights_digest import load_described
from sfnode.training.shared_model import SharedModel
from tests.training.exports import CONFIGS, TrainedRun, save_base, trained_run

TOKENS = torch.arange(20).view(2, 10) * 17 + 3
PAGE = 4096


@pytest.fixture
def run(tmp_path: Path) -> TrainedRun:
    return trained_run(save_base("opt", tmp_path / "base"))


def _load(folder: Path, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    assert isinstance(model, PreTrainedModel)
    return model


def _everything_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("family", CONFIGS)
def test_export_model__every_kind_of_tensor__is_the_exact_view_rounded_once(family: str, tmp_path: Path) -> None:
    run = trained_run(save_base(family, tmp_path / "base"), groups=tuple(TensorGroup))
    export_model(Bases(run.manifest), run.coefficients, run.base, tmp_path / "out")
    before, after = (dict(_load(folder).named_parameters()) for folder in (run.base, tmp_path / "out"))
    trained = {tensor.name: index for index, tensor in enumerate(run.manifest.tensors)}
    assert set(trained) <= set(after)
    for name, parameter in after.items():
        stored = before[name].detach()
        if name in trained:
            expected = run.exact_weight(trained[name], stored).astype(np.float32)
            assert np.array_equal(parameter.detach().numpy(), expected), name
            assert not torch.equal(parameter, stored), name
        else:
            assert torch.equal(parameter, stored), name


def test_export_model__tied_head__follows_the_trained_embedding(tmp_path: Path) -> None:
    run = trained_run(save_base("opt", tmp_path / "base"), groups=(TensorGroup.EMBEDDING,))
    export_model(Bases(run.manifest), run.coefficients, run.base, tmp_path / "out")
    model = _load(tmp_path / "out")
    head, embedding = model.get_parameter("lm_head.weight"), model.get_parameter("model.decoder.embed_tokens.weight")
    assert head is embedding
    index = [tensor.name for tensor in run.manifest.tensors].index("model.decoder.embed_tokens.weight")
    stored = _load(run.base).get_parameter("lm_head.weight").detach()
    assert np.array_equal(head.detach().numpy(), run.exact_weight(index, stored).astype(np.float32))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_export_model__another_dtype__is_what_a_node_of_that_dtype_has(
    run: TrainedRun, tmp_path: Path, dtype: torch.dtype
) -> None:
    export_model(Bases(run.manifest), run.coefficients, run.base, tmp_path / "narrow", dtype)
    exported = load_file(tmp_path / "narrow" / "model.safetensors")
    held = dict(_load(run.base, dtype).named_parameters())
    epochs = {epoch: run.coefficients.flat(epoch) for epoch in run.coefficients.epochs()}
    folded = fold_weights(Bases(run.manifest), epochs, held)
    assert folded and all(torch.equal(exported[name], weight) for name, weight in folded.items())
    assert all(torch.equal(weight, held[name]) for name, weight in exported.items() if name not in folded)
    assert json.loads((tmp_path / "narrow" / "config.json").read_text())["dtype"] == str(dtype).removeprefix("torch.")


def test_export_model__bf16_and_small_updates__keeps_them_on_average(tmp_path: Path) -> None:
    """To the nearest, most of an update of 1e-5 in a model of bf16 was lost, and nobody was told."""
    wide = save_base("opt", tmp_path / "wide")
    moved, wanted = 0.0, 0.0
    for number in range(8):  # in one model as small as this one, chance is a sixth
        folder = tmp_path / f"base-{number}"  # its name is the run's, too, by which chance is drawn
        _load(wide, torch.bfloat16).save_pretrained(folder)
        for file in wide.glob("tokenizer*"):
            shutil.copy(file, folder / file.name)
        run = trained_run(folder, magnitude=1 << 20)  # of about 0.1
        for epoch in run.coefficients.epochs():
            run.coefficients.set_flat(epoch, run.coefficients.flat(epoch) // 10_000)
        export_model(Bases(run.manifest), run.coefficients, run.base, tmp_path / f"out-{number}", torch.bfloat16)
        exported, base = load_file(tmp_path / f"out-{number}" / "model.safetensors"), _load(run.base)
        for index, tensor in enumerate(run.manifest.tensors):
            stored = base.get_parameter(tensor.name).detach().double()
            update = torch.from_numpy(run.exact_weight(index, stored)) - stored
            moved += float(((exported[tensor.name].double() - stored) * update).sum())
            wanted += float((update * update).sum())
    assert 0.8 < moved / wanted < 1.2


def test_export_model__run_without_updates__is_the_base_model(tmp_path: Path) -> None:
    run = trained_run(save_base("opt", tmp_path / "base"), epochs=())
    export_model(Bases(run.manifest), run.coefficients, run.base, tmp_path / "out")
    with torch.no_grad():
        assert torch.equal(_load(tmp_path / "out")(TOKENS).logits, _load(run.base)(TOKENS).logits)


@pytest.mark.parametrize("field", ["output_attentions", "output_hidden_states", "return_dict"])
def test_export_model__config_that_asks_for_other_outputs__computes_the_same_and_asks_for_hidden_states(
    field: str, run: TrainedRun, tmp_path: Path
) -> None:
    """Attentions ended in a traceback at the export; without a dict, the model was refused as no model of texts."""
    config = json.loads((run.base / "config.json").read_text()) | {field: field != "return_dict"}
    (run.base / "config.json").write_text(json.dumps(config))
    shared = SharedModel(load_causal_lm(run.base, torch.device("cpu"), torch.float32))
    model = load_described(ModelFolder(path=run.base, id="local:base", revision=""))[1]
    manifest = replace(run.manifest, model=model)
    export_model(Bases(manifest), Coefficients(manifest), run.base, tmp_path / "out")
    with torch.no_grad():
        assert torch.equal(shared.model(TOKENS).logits, _load(tmp_path / "out")(TOKENS).logits)
        assert (_load(tmp_path / "out")(TOKENS).hidden_states is not None) is (field == "output_hidden_states")


def test_export_model__folder__tells_its_origin_and_has_the_tokenizer(run: TrainedRun, tmp_path: Path) -> None:
    export_model(Bases(run.manifest), run.coefficients, run.base, tmp_path / "deep" / "out")
    origin = json.loads((tmp_path / "deep" / "out" / "sfnode.json").read_text())
    assert origin["run_id"] == run.manifest.run_id.hex()
    assert origin["state_digest"] == run.coefficients.digest().hex()
    ours, theirs = (AutoTokenizer.from_pretrained(folder) for folder in (tmp_path / "deep" / "out", run.base))
    assert ours("The plot was dull.")["input_ids"] == theirs("The plot was dull.")["input_ids"]


@pytest.mark.parametrize(
    "settings_text",
    [
        '{"eos_token_id": [2, 7], "temperature": 0.6, "do_sample": true}',
        '{"eos_token_id": [2, 7], "temperature": 0.6}',
        "",
    ],
    ids=["sampling", "that contradict themselves", "none"],
)
def test_export_model__chat_template_and_settings_for_generation__are_the_models_own(
    settings_text: str, tmp_path: Path
) -> None:
    """A fault once: an exported chat model had no template, and stopped at what its config.json says.

    Without `do_sample` a temperature means nothing; transformers reads such settings, and refuses to write them.
    """
    has_settings = bool(settings_text)
    base = save_base("llama", tmp_path / "base")
    (base / "generation_config.json").unlink()
    (base / "chat_template.jinja").write_text("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}")
    if has_settings:
        (base / "generation_config.json").write_text(settings_text)
    run = trained_run(base)
    export_model(Bases(run.manifest), run.coefficients, base, tmp_path / "out")
    ours, theirs = (AutoTokenizer.from_pretrained(folder) for folder in (tmp_path / "out", base))
    said = [{"role": "user", "content": "good?"}]
    assert ours.apply_chat_template(said, tokenize=False) == theirs.apply_chat_template(said, tokenize=False)
    settings = [_load(folder).generation_config for folder in (tmp_path / "out", base)]
    assert settings[0] == settings[1] and (settings[0].eos_token_id == [2, 7]) == has_settings
    assert (tmp_path / "out" / "generation_config.json").exists() == has_settings


def test_export_model__same_state_twice__is_the_same_bytes(run: TrainedRun, tmp_path: Path) -> None:
    for name in ("one", "two"):
        export_model(Bases(run.manifest), run.coefficients, run.base, tmp_path / name)
    assert _everything_in(tmp_path / "one") == _everything_in(tmp_path / "two")


def test_export_model__files__can_be_read_like_any_new_file(run: TrainedRun, tmp_path: Path) -> None:
    export_model(Bases(run.manifest), run.coefficients, run.base, tmp_path / "out")
    (tmp_path / "new").touch()
    expected = (tmp_path / "new").stat().st_mode
    assert {path.stat().st_mode for path in (tmp_path / "out").iterdir()} == {expected}


def test_export_model__folder_not_empty__is_refused_and_left_alone(run: TrainedRun, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("precious")
    for export in (export_model, export_adapter):
        with pytest.raises(OperatorError, match=r"not empty.*--force"):
            export(Bases(run.manifest), run.coefficients, run.base, out)
    assert _everything_in(out) == {"mine.txt": b"precious"}


def test_export_model__earlier_export_and_force__replaces_it(run: TrainedRun, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export_adapter(Bases(run.manifest), run.coefficients, run.base, out)
    assert (out / "adapter_config.json").exists()
    export_model(Bases(run.manifest), run.coefficients, run.base, out, force=True)
    assert not (out / "adapter_config.json").exists()
    assert (out / "model.safetensors").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base", "out"]


def test_export_model__further_chat_templates__can_be_read_and_replaced(run: TrainedRun, tmp_path: Path) -> None:
    """Nobody but root could enter their folder, and --force refused it as made by no export."""
    out, templates = tmp_path / "out", "additional_chat_templates"
    (run.base / templates).mkdir()
    (run.base / templates / "tool_use.jinja").write_text("{{ messages }}")
    for _ in range(2):
        export_model(Bases(run.manifest), run.coefficients, run.base, out, force=True)
        assert stat.S_IMODE((out / templates).stat().st_mode) == stat.S_IMODE(out.stat().st_mode)
        assert (out / templates / "tool_use.jinja").is_file()
    (out / templates / "mine.txt").write_text("precious")
    with pytest.raises(OperatorError, match=f"holds {templates}/mine.txt, which no export has made"):
        export_model(Bases(run.manifest), run.coefficients, run.base, out, force=True)


@pytest.mark.parametrize("kind", ["file", "folder", "link", "linked folder", "no export", "list that lies"])
def test_export_model__force_on_what_no_export_has_made__is_refused_and_left_alone(
    run: TrainedRun, tmp_path: Path, kind: str
) -> None:
    """`--out` of a node's own folder deleted its key and its ledger, with exit code 0."""
    out = tmp_path / "out"
    export_adapter(Bases(run.manifest), run.coefficients, run.base, out)
    match kind:
        case "file":
            (out / "identity.key").write_text("precious")
        case "folder":
            (out / "node").mkdir()
        case "link":
            (out / "adapter_config.json").unlink()
            (out / "adapter_config.json").symlink_to(tmp_path / "base")
        case "linked folder":
            (out / "there").symlink_to(tmp_path / "base")
            (out / "sfnode.json").write_text(json.dumps({"files": [*os.listdir(out), "there/config.json"]}))
        case "no export":
            (out / "sfnode.json").unlink()
        case "list that lies":
            (out / "sfnode.json").write_text("[1, 2")
    before = sorted(out.iterdir())
    for export in (export_model, export_adapter):
        with pytest.raises(OperatorError, match="which no export has made"):
            export(Bases(run.manifest), run.coefficients, run.base, out, force=True)
    assert sorted(out.iterdir()) == before


def test_export_model__out_is_what_is_read_or_above_it__is_refused_and_left_alone(
    run: TrainedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = tmp_path / "deep" / "node"
    node.mkdir(parents=True)
    (node / "identity.key").write_text("precious")
    (tmp_path / "link").symlink_to(node)
    monkeypatch.chdir(node)
    for out in (node, node.parent, tmp_path / "link", Path("."), Path(".."), Path("/")):
        with pytest.raises(OperatorError, match=r"which is being read|cannot be replaced"):
            check_free(out, True, (node,))
    for export in (export_model, export_adapter):
        with pytest.raises(OperatorError, match="which is being read"):
            export(Bases(run.manifest), run.coefficients, run.base, run.base, force=True)
    assert (node / "identity.key").read_text() == "precious"


def test_export_model__out_is_a_file__is_an_operator_error(run: TrainedRun, tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(OperatorError, match="is a file"):
        export_model(Bases(run.manifest), run.coefficients, run.base, tmp_path / "out", force=True)


def test_export_model__another_base_model__is_an_operator_error(run: TrainedRun, tmp_path: Path) -> None:
    other = save_base("gpt2", tmp_path / "other")
    for export in (export_model, export_adapter):
        with pytest.raises(OperatorError, match="is not the run's file"):
            export(Bases(run.manifest), run.coefficients, other, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@contextmanager
def _disk_for(file_bytes: int) -> Iterator[None]:
    """Every write beyond so many bytes of a file fails, half-way: the nearest to a full disk without root."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("file_bytes", [16, PAGE])
@pytest.mark.parametrize("force", [False, True])
def test_export_model__write_fails_half_way__leaves_everything_as_it_was(
    run: TrainedRun, tmp_path: Path, file_bytes: int, force: bool
) -> None:
    out = tmp_path / "out"
    if force:
        out.mkdir()
        (out / "sfnode.json").write_text('{"files": ["sfnode.json"]}')
    for export in (export_model, export_adapter):
        with _disk_for(file_bytes), pytest.raises(OperatorError, match=r"cannot write .*out: File too large"):
            export(Bases(run.manifest), run.coefficients, run.base, out, force=force)
    assert sorted(path.name for path in tmp_path.iterdir()) == (["base", "out"] if force else ["base"])
    assert not force or _everything_in(out) == {"sfnode.json": b'{"files": ["sfnode.json"]}'}


def _fail_inside(out: Path, error: Exception) -> None:
    with fresh_folder(out, {}, force=False) as part:
        (part / "file").touch()
        raise error


@pytest.mark.parametrize(
    ("error", "raised", "text"),
    [
        (OSError(28, "No space left on device"), OperatorError, "disk is full"),
        (SafetensorError("I/O error: No space left on device (os error 28)"), OperatorError, "disk is full"),
        (SafetensorError("unknown"), OperatorError, "unknown"),
        (StrictDataclassError("of config.json"), OperatorError, "of config.json"),
        (RuntimeError("a bug"), RuntimeError, "a bug"),
    ],
)
def test_fresh_folder__error_inside__leaves_nothing_behind(
    tmp_path: Path, error: Exception, raised: type[Exception], text: str
) -> None:
    with pytest.raises(raised, match=text):
        _fail_inside(tmp_path / "out", error)
    assert list(tmp_path.iterdir()) == []


def test_fresh_folder__earlier_export_was_killed__removes_what_it_has_left(tmp_path: Path) -> None:
    """Gigabytes stayed for good; in a container, whose processes have the same ids, every later export failed."""
    with subprocess.Popen(["true"]) as dead:
        pass
    left, others = [f".out.part-{dead.pid}", f".out.part-{os.getpid()}"], [".out.part-1", f".out2.part-{dead.pid}"]
    for name in (*left, *others):
        (tmp_path / name / "folder").mkdir(parents=True)
    with fresh_folder(tmp_path / "out", {}, force=False) as part:
        (part / "file").touch()
    assert sorted(path.name for path in tmp_path.iterdir()) == [*others, "out"]


def test_fresh_folder__link_or_dot_given__replaces_the_folder_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    for out in (tmp_path / "link", Path(".")):
        monkeypatch.chdir(real)
        with fresh_folder(out, {}, force=True) as part:
            (part / "file").write_text(str(out))
        assert (real / "file").read_text() == str(out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"]
