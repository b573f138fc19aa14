"""Bad model files, data, ports, directories and devices as ``sfnode join``, ``eval`` and ``export`` meet them."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from protocol.ledger.envelope import EnvelopeCodec
from sfnode import demo
from sfnode.storage.data_directory import LEDGER_FILE, DataDirectory, decode_run_file
from sfnode.storage.record_store import Store
from tests.support.cli_calls import Outcome, assert_teaches, call
from tests.support.daemons import DATA, demo_run, free_port, write_run
from tests.support.manifests import OWNER
from tests.support.small_disk import fill, remount, small_disk

pytest_plugins = ("tests.support.node_fixtures",)

TASK = ("--template", "{sentence} It was", "--labels", " no, yes")
Join = Callable[..., Outcome]


@pytest.fixture(scope="module")
def run_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on the embedded model and data."""
    path = tmp_path_factory.mktemp("run") / "good.run"
    write_run(demo_run(steps=8), path)
    return path


@pytest.fixture(scope="module")
def local_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a local copy of the model, with private data; the copy lies beside it in ``model``."""
    folder = tmp_path_factory.mktemp("local")
    shutil.copytree(demo.model_folder(), folder / "model")
    outcome = call(
        "init",
        "--model",
        folder / "model",
        *TASK,
        "--private-data",
        "--admission",
        "open",
        "--out",
        folder / "local.run",
    )  # open: a node that is not admitted loads no model and no data
    assert outcome.code == 0, outcome
    return folder / "local.run"


@pytest.fixture
def join(worker: Path, tmp_path: Path) -> Join:
    """``sfnode join`` on a new data directory; only for joins that must fail."""

    def run(*arguments: object, data_dir: Path = tmp_path / "node") -> Outcome:
        return call("join", "--data-dir", data_dir, "--worker-socket", worker, "--json", *arguments)

    return run


# --- models -----------------------------------------------------------------------------------------------------


def without_safetensors(model: Path) -> None:
    (model / "model.safetensors").unlink()


def pickle_only(model: Path) -> None:
    (model / "model.safetensors").rename(model / "pytorch_model.bin")


def truncated(model: Path) -> None:
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:20_000])


def lacking_a_tensor(model: Path) -> None:
    tensors = load_file(model / "model.safetensors")
    del tensors["model.decoder.layers.0.fc1.weight"]
    save_file(tensors, model / "model.safetensors", {"format": "pt"})


def without_config(model: Path) -> None:
    (model / "config.json").unlink()


def bad_config(model: Path) -> None:
    (model / "config.json").write_text("{")


def unknown_architecture(model: Path) -> None:
    (model / "config.json").write_text('{"model_type": "abacus"}')


def without_tokenizer(model: Path) -> None:
    for path in model.glob("tokenizer*"):
        path.unlink()


@pytest.mark.parametrize(
    ("harm", "parts"),
    [
        (shutil.rmtree, ("no such folder", "*.safetensors", "facebook/opt-125m")),
        (without_safetensors, ("model.safetensors is missing", "fetch it again")),
        (pickle_only, ("pytorch_model.bin", "is not a file that torch.save has written", "convert the model")),
        (truncated, ("cannot be loaded", "header")),
        (lacking_a_tensor, ("lack 1 tensors", "model.decoder.layers.0.fc1.weight")),
        (without_config, ("config.json is missing", "not a model folder")),
        (bad_config, ("config.json", "not a valid JSON")),
        (unknown_architecture, ("cannot be loaded", "abacus")),
        (without_tokenizer, ("no tokenizer", "tokenizer.json", "copy it there")),
    ],
)
def test_init__bad_model_folder__says_what_it_lacks(
    harm: Callable[[Path], None], parts: tuple[str, ...], tmp_path: Path
) -> None:
    model = shutil.copytree(demo.model_folder(), tmp_path / "model")
    harm(model)
    assert_teaches(
        call("init", "--model", model, *TASK, "--data", DATA, "--out", tmp_path / "a.run"), str(model), *parts
    )
    assert not (tmp_path / "a.run").exists()


def changed_weight(model: Path) -> None:
    tensors = load_file(model / "model.safetensors")
    tensors["model.decoder.layers.0.fc1.weight"][0, 0] += 1
    save_file(tensors, model / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize(
    ("harm", "parts"),
    [
        (changed_weight, ("the weights in", "are not the run's: their content is", "use the run's model")),
        (without_safetensors, ("model.safetensors is missing", "fetch it again")),
        (bad_config, ("config.json is not the run's file", "use the run's model")),
        (without_tokenizer, ("tokenizer", "is missing", "use the run's model")),
    ],
)
def test_join__model_that_differs_from_the_run__stops_with_the_file_named(
    harm: Callable[[Path], None], parts: tuple[str, ...], local_run: Path, join: Join, tmp_path: Path
) -> None:
    model = shutil.copytree(local_run.parent / "model", tmp_path / "model")
    harm(model)
    data = demo.data_file("reviews")
    assert_teaches(join("--run", local_run, "--model", model, "--data", data), str(model), *parts)


def test_join__local_model_not_given_or_absent__says_which_one_is_meant(local_run: Path, join: Join) -> None:
    data = demo.data_file("reviews")
    alone = join("--run", local_run, "--data", data, "--no-fetch-model")  # it may not ask its neighbours
    assert_teaches(alone, "--model is missing", "local folder, model")
    outcome = join("--run", local_run, "--data", data, "--model", "/absent/model")
    assert_teaches(outcome, "--model /absent/model", "local:model", "with a copy of it")


# --- data -------------------------------------------------------------------------------------------------------


def test_join__private_data_not_given__says_what_is_needed(local_run: Path, join: Join) -> None:
    outcome = join("--run", local_run, "--model", local_run.parent / "model")
    assert_teaches(
        outcome, "--data is missing", "your own JSONL file or CSV", '(a row: {"sentence": "...", "label": 0})'
    )


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ("no examples",)),
        ('{"sentence": "a", "label": 0}\n{"sentence": "b", "label": 0\n', (":2", "not JSON")),
        ('{"sentence": "a", "label": 2}\n', (":1", "label 2", "0 ... 1")),
    ],
)
def test_join__bad_private_data__names_file_and_line(
    text: str, parts: tuple[str, ...], local_run: Path, join: Join, tmp_path: Path
) -> None:
    data = tmp_path / "mine.jsonl"
    data.write_text(text)
    outcome = join("--run", local_run, "--model", local_run.parent / "model", "--data", data)
    assert_teaches(outcome, str(data), *parts)


def test_join__node_is_not_admitted_yet__wrong_rows_or_model_show_at_once(tmp_path: Path) -> None:
    """It starts no worker before it is admitted: a volunteer learned of a wrong column when the owner had come home."""
    made, model = tmp_path / "invited.run", shutil.copytree(demo.model_folder(), tmp_path / "model")
    given = ("--model", model, "--private-data", "--admission", "allow-list", "--out", made)
    assert call("init", *TASK, *given).code == 0
    rows = tmp_path / "mine.csv"
    rows.write_text("text,label\nfine,yes\n")
    joins = ("join", "--run", made, "--data-dir", tmp_path / "node", "--model", model)
    assert_teaches(call(*joins, "--data", rows), "mine.csv", "no column 'sentence'", "'text', 'label'")
    good = ("--data", demo.data_file("reviews"))
    assert_teaches(call(*joins, *good, "--eval-data", rows), "mine.csv", "no column 'sentence'")
    tensors = load_file(model / "model.safetensors")
    tensors["model.decoder.layers.0.fc1.weight"] = tensors["model.decoder.layers.0.fc1.weight"][:-1].contiguous()
    save_file(tensors, model / "model.safetensors", {"format": "pt"})
    assert_teaches(call(*joins, *good), "is not the run's model", "has the shape")


def test_join__data_of_another_hash__says_whose_to_get(run_file: Path, join: Join, tmp_path: Path) -> None:
    data = tmp_path / "other.jsonl"
    data.write_text('{"sentence": "a", "label": 0}\n')
    assert_teaches(join("--run", run_file, "--data", data), str(data), "SHA-256", "owner of the run published")


def test_join__evaluation_without_data__is_refused_at_the_start(local_run: Path, join: Join) -> None:
    arguments = ("--model", local_run.parent / "model", "--data", demo.data_file("reviews"), "--eval-every", "2")
    assert_teaches(join("--run", local_run, *arguments), "--eval-every needs --eval-data")


@pytest.mark.skipif(torch.cuda.is_available(), reason="tells what happens where there is no CUDA")
def test_join__device_that_is_not_there__says_which_to_use(run_file: Path, join: Join) -> None:
    assert_teaches(join("--run", run_file, "--device", "cuda"), "device 'cuda'", "--device cpu or auto")


# --- ports and directories --------------------------------------------------------------------------------------


def test_join__port_in_use__names_it(run_file: Path, join: Join) -> None:
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        listen = f"/ip4/127.0.0.1/tcp/{taken.getsockname()[1]}"
        assert_teaches(join("--run", run_file, "--listen", listen), listen, "already in use", "another port")


def test_join__directory_of_another_run__is_refused(
    run_file: Path, local_run: Path, join: Join, tmp_path: Path
) -> None:
    Store(DataDirectory(tmp_path / "node"), decode_run_file(local_run)).close()
    (tmp_path / "node" / "node.toml").write_text('data = "/nowhere/of-the-other-run.jsonl"\n')  # named it, once
    outcome = join("--run", run_file)
    assert_teaches(outcome, str(tmp_path / "node"), "belongs to run 'local'", "not to 'test'", "--data-dir")


def test_join__directory_in_use__is_refused(run_file: Path, join: Join, tmp_path: Path) -> None:
    held = Store(DataDirectory(tmp_path / "node"), decode_run_file(run_file))
    assert_teaches(join("--run", run_file), str(tmp_path / "node"), "in use by another sfnode", "--data-dir")
    held.close()


def test_join__identity_that_is_not_a_key__is_not_replaced(run_file: Path, join: Join, tmp_path: Path) -> None:
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "identity.key").touch(0o600)
    assert_teaches(join("--run", run_file), "identity.key", "64 hexadecimal digits", "backup")
    assert (tmp_path / "node" / "identity.key").read_text() == ""


def test_join__file_that_is_not_a_database__says_what_to_do(run_file: Path, join: Join, tmp_path: Path) -> None:
    Store(DataDirectory(tmp_path / "node"), decode_run_file(run_file)).close()
    (tmp_path / "node" / LEDGER_FILE).write_bytes(b"garbage " * 999)
    assert_teaches(join("--run", run_file), LEDGER_FILE, "damaged", "Move it away", "keep identity.key")


def test_join__full_disk__says_so(run_file: Path, join: Join, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", kilobytes=256) as disk:
        filler = fill(disk)
        assert_teaches(join("--run", run_file, data_dir=disk / "node"), str(disk), "disk is full", "Free some space")
        filler.unlink()


def test_join__read_only_disk__says_so(run_file: Path, join: Join, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", kilobytes=256) as disk:
        remount(disk, "ro")
        outcome = join("--run", run_file, data_dir=disk / "node")
        assert_teaches(outcome, str(disk), "Read-only", "Choose another place or change the permissions")


# --- the trained model ------------------------------------------------------------------------------------------


def test_eval__without_data__says_what_is_needed(local_run: Path, tmp_path: Path) -> None:
    Store(DataDirectory(tmp_path), decode_run_file(local_run)).close()
    model = local_run.parent / "model"
    assert_teaches(call("eval", "--data-dir", tmp_path, "--model", model), "--eval-data is missing", "JSONL")


def test_export__folder_that_is_not_empty__stays_as_it_was(run_file: Path, tmp_path: Path) -> None:
    Store(DataDirectory(tmp_path / "node"), decode_run_file(run_file)).close()
    out = tmp_path / "out"
    out.mkdir()
    (out / "precious").write_text("mine")
    assert_teaches(call("export", "--data-dir", tmp_path / "node", "--out", out), str(out), "not empty", "--force")
    assert [path.name for path in out.iterdir()] == ["precious"]


def test_log_verify__flipped_byte__says_not_ok_and_fails(run_file: Path, tmp_path: Path) -> None:
    signed = decode_run_file(run_file)
    codec = EnvelopeCodec(signed.manifest)
    records = [codec.seal(OWNER, step, (32, -32, 32, -32)).record for step in range(8)]
    store = Store(DataDirectory(tmp_path), signed)
    store.add(records, is_durable=True)
    store.close()
    healthy = call("log", "verify", tmp_path, "--json")
    assert healthy.code == 0
    assert json.loads(healthy.stdout)["ok"] is True and json.loads(healthy.stdout)["updates"] == 8
    content = bytearray((tmp_path / LEDGER_FILE).read_bytes())
    content[content.index(records[4]) + len(records[4]) - 1] ^= 1
    (tmp_path / LEDGER_FILE).write_bytes(content)
    damaged = call("log", "verify", tmp_path, "--json")
    assert_teaches(damaged, LEDGER_FILE, "record 5", "signature", "Move it away")
    found = json.loads(damaged.stdout)
    assert found["ok"] is False and "record 5" in found["problem"] and found["updates"] == 4
    for command in (("log", "show", tmp_path), ("eval", "--data-dir", tmp_path)):
        assert_teaches(call(*command), "record 5", "Move it away")
    assert_teaches(call("export", "--data-dir", tmp_path, "--out", tmp_path / "out"), "record 5", "Move it away")
