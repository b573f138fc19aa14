"""The commands that ``sfnode init`` prints at its end work as they are printed."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import stat
from pathlib import Path

import pytest

from protocol.run import is_plain_file_name
from sfnode import demo
from sfnode.storage import pasteable
from tests.support.cli_calls import assert_teaches, call
from tests.support.tiny_models import write_reviews

TASK = ("--template", "{sentence} It was", "--labels", " bad, good", "--plain", "--steps", 2, "--batch-rows", 8)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where an owner works: a model and data of their own, with awkward names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    shutil.copytree(demo.model_folder("tiny-opt"), tmp_path / "a model")
    write_reviews(tmp_path / "Ann's data.jsonl")
    return tmp_path


def printed(stdout: str, name: str) -> list[str]:
    """The command in the line of that name, as a shell takes it."""
    line = next(line for line in stdout.splitlines() if line.startswith(f"{name} "))
    command = shlex.split(line.removeprefix(name))
    assert command[0] == "sfnode"
    return command[1:]


@pytest.mark.slow
def test_init__own_model_and_data__next_command_starts_the_first_node(folder: Path) -> None:
    out = "my run.run"
    made = call("init", "--model", "a model", "--data", "Ann's data.jsonl", *TASK, "--out", out)
    assert made.code == 0, made
    command = printed(made.stdout, "next")
    assert command[:-1] == [
        "join", "--run", out, "--model", "a model", "--data", "Ann's data.jsonl",
        "--invite", "@my run.invite", "--owner-key", "my run.key", "--listen",
    ]  # fmt: skip
    here = "/ip4/127.0.0.1/tcp/0"  # not 4001, which another test or node may have
    extra = ("--exit-when-finished", "--no-mdns", "--threads", 1, "--json", "--data-dir", "node")
    joined = call(*command[:-1], here, *extra)
    assert joined.code == 0, joined
    events = [json.loads(line) for line in joined.stdout.splitlines()]
    assert {"started", "worker_ready", "finished"} <= {event["event"] for event in events}
    assert json.loads(call("log", "verify", "node", "--json").stdout)["updates"] == 2  # the invitation was good
    invited = call(*printed(made.stdout, "invite"))
    assert invited.code == 0 and invited.stdout.startswith("invite:")


def test_init__as_json__has_the_same_command(folder: Path) -> None:
    made = json.loads(
        call("init", "--model", "a model", "--data", "Ann's data.jsonl", *TASK, "--out", "a.run", "--json").stdout
    )
    assert made["next"] == [
        "sfnode", "join", "--run", "a.run", "--model", "a model", "--data", "Ann's data.jsonl",
        "--invite", "@a.invite", "--owner-key", "a.key", "--listen", "/ip4/0.0.0.0/tcp/4001",
    ]  # fmt: skip
    secret = folder / "a.invite"
    assert secret.read_text() == made["invitation"] + "\n" and stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_init__embedded_model_and_data__next_command_does_not_name_them(folder: Path) -> None:
    arguments = ("--model", "embedded:tiny-opt", "--task", "embedded:reviews", "--plain", "--admission", "open")
    made = json.loads(call("init", *arguments, "--out", "a.run", "--json").stdout)
    assert made["next"] == ["sfnode", "join", "--run", "a.run", "--listen", "/ip4/0.0.0.0/tcp/4001"]


def test_init__private_data__next_command_has_the_owners_or_says_what_is_missing(folder: Path) -> None:
    private = ("--model", "embedded:tiny-opt", *TASK, "--private-data", "--admission", "open")
    made = call("init", *private, "--data", "Ann's data.jsonl", "--out", "a.run")
    assert printed(made.stdout, "next")[3:5] == ["--data", "Ann's data.jsonl"] and "\ndata " not in made.stdout
    made = call("init", *private, "--out", "b.run")
    assert "--data" not in printed(made.stdout, "next") and "\ndata     add --data FILE" in made.stdout


def test_init__allow_list__admit_command_needs_nothing_but_the_author(folder: Path) -> None:
    arguments = ("--model", "embedded:tiny-opt", *TASK, "--data", "Ann's data.jsonl", "--admission", "allow-list")
    command = printed(call("init", *arguments, "--out", "a b.run").stdout, "admit")
    node = Path(command[-1])
    assert node.parent == folder / "home" / ".sfnode" and is_plain_file_name(node.name)
    assert_teaches(call(*command), "not a node's data directory")  # it has not begun yet
    node.mkdir(parents=True)
    shutil.copy("a b.run", node / "manifest.run")
    author = json.loads(call("id", "new", "--out", "k.key", "--json").stdout)["author"]
    assert call(*(author if word == "AUTHOR" else word for word in command)).code == 0


def test_printed_command__names_with_spaces_and_quotes__are_one_word_each(folder: Path) -> None:
    refused = call("start", "--data-dir", "Ann's node")
    assert refused.code == 1
    (command,) = re.findall("`(sfnode join .*)`", refused.stderr.replace("\n", " "))
    assert shlex.split(command) == ["sfnode", "join", "--data-dir", "Ann's node"]
    assert pasteable("sfnode ask --data-dir", Path("a b"), "$HOME", 7) == "sfnode ask --data-dir 'a b' '$HOME' 7"
