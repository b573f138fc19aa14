"""Which model an operator may name for a run, and of which revision."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.errors import OperatorError
from protocol.run.manifest import Manifest, checked
from sfnode.model_files.model_cache import FetchedModel
from sfnode.run.model_reference import find_model
from tests.support.manifests import manifest_data


def run_of(model: str, revision: str = "") -> Manifest:
    data = manifest_data()
    data["model"] |= {"id": model, "revision": revision}
    return checked(data)


@pytest.mark.parametrize("model", ["facebook/opt-125m", "pypi:llm-tiny", "embedded:tiny-opt"])
def test_model__not_named__is_the_manifests(model: str) -> None:
    assert find_model(run_of(model), None) == model


def test_model__local_and_not_named__path_is_asked_for() -> None:
    with pytest.raises(OperatorError, match="--model is missing: the run's model is a local folder, none"):
        find_model(run_of("local:none"), None)


@pytest.mark.parametrize("model", ["local:none", "facebook/opt-125m"])
def test_model__fetched_from_neighbours_and_not_named__is_found_in_the_cache(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault once: after `join` had fetched a model, `eval` and `export` asked for the path of it."""
    monkeypatch.setenv("SFNODE_MODELS", str(tmp_path))
    run = run_of(model)
    folder = FetchedModel(run.model).folder
    folder.mkdir()
    for file in run.model.files:
        assert model.startswith("local:") or find_model(run, None) == model
        (folder / file.name).touch()
    assert find_model(run, None) == str(folder)


@pytest.mark.parametrize(
    ("wanted", "named"),
    [("facebook/opt-125m", "."), ("pypi:llm-tiny", "pypi:LLM_tiny==1.0"), ("pypi:llm-tiny", "tiny.gguf")],
)
def test_model__a_copy_or_the_same_package__is_taken(
    wanted: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tiny.gguf").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    assert find_model(run_of(wanted, "1.0"), named) == named


@pytest.mark.parametrize("named", ["facebook/opt-350m", "pypi:llm-small", "absent.gguf", "x" * 300])
def test_model__another_one__is_refused(named: str) -> None:
    with pytest.raises(OperatorError, match="is not the run's model, which is pypi:llm-tiny"):
        find_model(run_of("pypi:llm-tiny", "1.0"), named)


def test_revision__the_manifests__is_taken() -> None:
    assert find_model(run_of("pypi:llm-tiny", "1.0"), None, "1.0") == "pypi:llm-tiny"


@pytest.mark.parametrize(("wanted", "said"), [("1.0", "is of revision 1.0"), ("", "is of no revision")])
def test_revision__another_one__is_refused(wanted: str, said: str) -> None:
    with pytest.raises(OperatorError, match=rf"--revision 1\.1 is not the run's: its model pypi:llm-tiny {said}"):
        find_model(run_of("pypi:llm-tiny", wanted), None, "1.1")


def test_model__quantised_copy_whose_config_is_another_once_converted__is_taken(tmp_path: Path) -> None:
    """A fault once: `init` took a model in mxfp4, and `join` named its config.json as another than the run's."""
    (tmp_path / "model.safetensors").touch()
    (tmp_path / "config.json").write_text('{"quantization_config": {"quant_method": "mxfp4"}}')
    assert find_model(run_of("local:model"), str(tmp_path)) == str(tmp_path)
