"""``sfnode config``, and what a start makes of `node.toml` and the command line."""

from __future__ import annotations

import io
import json
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir

import pytest

from protocol.errors import OperatorError
from protocol.node import SnapshotUse
from protocol.run import no_model
from protocol.run.manifest import sign_manifest
from sfnode.cli.remembered_options import SETTINGS, Origin, Recalled, model_of, read_settings, recall
from sfnode.keys import new_invitation
from sfnode.network.policy.addresses import parse_bootstrap, parse_listen
from sfnode.run.node_options import JoinOptions, NetworkOptions, RunSource, TrainingOptions
from sfnode.run.node_toml import FieldValue, read_node_file, write_node_file
from sfnode.run.run_address import RunAddress, join_string
from sfnode.storage.data_directory import MANIFEST_FILE, NODE_FILE, DataDirectory
from sfnode.storage.record_store import Store
from tests.support.cli_calls import Outcome, assert_teaches, call
from tests.support.manifests import OWNER, small_manifest
from tests.support.tiny_models import write_reviews

PEER = "/ip4/203.0.113.7/tcp/4001/p2p/12D3KooWNtad85FCBXiYiRW4EpMg3ZCjyq2LoDG6qs9hc8VaHeaX"
LISTEN = "/ip4/0.0.0.0/tcp/4001"
SIGNED = sign_manifest(small_manifest(), OWNER)
NOTHING = JoinOptions(source=RunSource())
JOIN_STRING = join_string(
    RunAddress(
        run_id=SIGNED.manifest.run_id,
        nodes=(parse_bootstrap(PEER),),
        invitation=new_invitation(small_manifest(admission="invite"), OWNER).text,
        run_model="some/model",
        run_data="private",
    )
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The data directory of a node that remembers nothing."""
    Store(DataDirectory(tmp_path / "node"), SIGNED).close()
    return tmp_path / "node"


def written(directory: Path, text: str) -> Path:
    path = directory / NODE_FILE
    path.write_text(text)
    return path


def kept(told: Recalled, directory: Path) -> dict[str, object] | None:
    """What the node remembers after this start."""
    told.keep(DataDirectory(directory))
    return read_node_file(DataDirectory(directory))


def config(action: str, *arguments: object, directory: Path) -> Outcome:
    return call("config", action, *arguments, "--data-dir", directory)


def shown(directory: Path, *arguments: object) -> dict[str, tuple[object, str]]:
    told = json.loads(call("config", "show", "--data-dir", directory, "--json", *arguments).stdout)
    assert told["file"] == str(directory / NODE_FILE)
    return {key: (each["value"], each["origin"]) for key, each in told["settings"].items()}


# --- what holds


def test_recall__worker_socket_of_an_ended_testnet__is_left_out_for_a_worker_of_its_own(
    directory: Path, tmp_path: Path
) -> None:
    """A fault once: a testnet's node that was started anew looked for the testnet's worker for ever, and measured
    nothing. A worker of the operator's own that is not up yet is waited for, though its folder comes with it."""
    for folder, is_kept in ((Path(gettempdir(), "gone"), False), (tmp_path, True), (Path("/run/not-yet-there"), True)):
        written(directory, f'worker-socket = "{folder / "worker.sock"}"\n')
        expected = folder / "worker.sock" if is_kept else None
        assert recall(NOTHING, frozenset(), DataDirectory(directory)).options.training.worker_socket == expected


def test_recall__file_and_command_line__the_command_line_wins_and_the_rest_is_remembered(directory: Path) -> None:
    written(directory, f'threads = 3\neval-every = 7\nlisten = ["{LISTEN}"]\nrelay = true\nsnapshot = "never"\n')
    typed = JoinOptions(source=RunSource(), training=TrainingOptions(threads=5))
    told = recall(typed, frozenset({"threads"}), DataDirectory(directory))
    assert (told.options.training.threads, told.options.training.eval_every) == (5, 7)
    assert told.options.network.listen == (parse_listen(LISTEN),) and told.options.is_relay
    assert told.options.snapshots.snapshot is SnapshotUse.NEVER
    assert told.settings["threads"].origin is Origin.COMMAND_LINE
    assert told.settings["listen"].origin is Origin.FILE
    assert told.settings["announce"].origin is Origin.DEFAULT
    assert kept(told, directory) == {
        "eval-every": 7, "threads": 5, "listen": [LISTEN], "snapshot": "never", "relay": True,
    }  # fmt: skip


def test_recall__no_file_and_nothing_typed__is_the_default_of_each_option(directory: Path) -> None:
    told = recall(NOTHING, frozenset(), DataDirectory(directory))
    assert told.options == NOTHING and kept(told, directory) == {}


def test_recall__bootstraps__are_kept_without_the_run_and_an_address_replaces_them(directory: Path) -> None:
    written(directory, f'bootstrap = ["{PEER}"]\n')
    held = recall(NOTHING, frozenset(), DataDirectory(directory)).options.source.bootstrap
    assert held == RunAddress(nodes=(parse_bootstrap(PEER),))
    other = parse_bootstrap(PEER.replace("203.0.113.7", "203.0.113.8"))
    address = RunAddress(run_id=SIGNED.manifest.run_id, nodes=(other,))
    told = recall(JoinOptions(source=RunSource(bootstrap=address)), frozenset({"bootstrap"}), DataDirectory(directory))
    assert told.options.source.bootstrap == address and kept(told, directory) == {"bootstrap": [str(other)]}


def test_recall__setting_is_changed_while_the_node_starts__stays_changed(directory: Path) -> None:
    """A start takes as long as its downloads, and had written what it began with over it."""
    written(directory, f'hours = "9-17"\nlisten = ["{LISTEN}"]\nthreads = 2\n')
    training = TrainingOptions(threads=5)
    told = recall(JoinOptions(source=RunSource(), training=training), frozenset({"threads"}), DataDirectory(directory))
    written(directory, 'hours = "22-7"\nthreads = 2\n')
    assert kept(told, directory) == {"hours": "22-7", "threads": 5}


def test_recall__paths__are_kept_from_the_root_on(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a model").mkdir()
    training = TrainingOptions(model="a model", data="my data.jsonl", eval_data="embedded:reviews")
    options = JoinOptions(source=RunSource(), training=training, network=NetworkOptions(listen=(parse_listen(LISTEN),)))
    told = recall(options, frozenset({"model", "data", "eval-data"}), DataDirectory(directory))
    wanted: dict[str, object] = {
        "model": str(tmp_path / "a model"), "data": str(tmp_path / "my data.jsonl"), "eval-data": "embedded:reviews",
    }  # fmt: skip
    assert kept(told, directory) == wanted


def test_settings__secrets_and_what_concerns_one_start__are_not_remembered() -> None:
    forgotten = {"invite", "run", "basis", "data-dir", "exit-when-finished", "json", "log-level"}
    assert not forgotten & SETTINGS.keys()
    assert {"listen", "bootstrap", "model", "data", "device", "dtype", "relay", "fetch-rate"} <= SETTINGS.keys()


# --- the file


def test_node_file__every_kind_of_value__comes_back_and_is_its_users_alone(directory: Path) -> None:
    fields: dict[str, FieldValue] = {
        "data": 'a "b"\\c\n\x7fé\U0001f600',
        "threads": 2,
        "upnp": True,
        "relay": False,
        "listen": ["x", "y z"],
    }
    write_node_file(DataDirectory(directory), fields)
    assert tomllib.loads((directory / NODE_FILE).read_text()) == fields == read_node_file(DataDirectory(directory))
    assert (directory / NODE_FILE).stat().st_mode & 0o777 == 0o600
    write_node_file(DataDirectory(directory), {})
    assert read_node_file(DataDirectory(directory)) == {}


def test_node_file__nothing_new__is_left_alone_with_the_comments_in_it(directory: Path) -> None:
    path = written(directory, "# mine\nthreads = 2\n")
    write_node_file(DataDirectory(directory), {"threads": 2})
    assert path.read_text() == "# mine\nthreads = 2\n"


def test_node_file__name_that_is_no_text__is_refused(directory: Path) -> None:
    with pytest.raises(OperatorError, match="not UTF-8 text"):
        write_node_file(DataDirectory(directory), {"data": "/tmp/\udcff.jsonl"})
    assert read_node_file(DataDirectory(directory)) is None


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("lisen = ['x']", ("'lisen'", "Known", "listen", "no-mdns")),
        ("invite = 'invite:x'", ("'invite'", "Known")),
        ("threads = 0", ("threads = 0", "1<=x<=1024")),
        ("threads = 2.5", ("threads = 2.5", "a whole number")),
        ("threads = true", ("threads = True", "a whole number")),
        ("threads = '2'", ("threads = '2'", "a whole number", "sfnode config set threads")),
        ("relay = 1", ("relay = 1", "true or false")),
        ("device = 'gpu'", ("device = 'gpu'", "'cuda'")),
        ("snapshot = 'perhaps'", ("snapshot = 'perhaps'", "'auto'")),
        (f"listen = '{LISTEN}'", ("listen = ", "a list of texts")),
        ("listen = [4001]", ("listen = [4001]", "a list of texts")),
        ("listen = ['4001']", ("listen: ", "4001", "/ip4/")),
        ("announce = ['4001']", ("announce: ", "4001", "/ip4/")),
        ("trusted-proxy = ['here']", ("trusted-proxy: ", "here")),
        ("bootstrap = ['/ip4/203.0.113.7/tcp/4001']", ("bootstrap: ", "203.0.113.7")),
        ("bootstrap = ['sfnode:12@x']", ("bootstrap: ", "sfnode:RUN_ID@")),
        (f"bootstrap = ['{JOIN_STRING}']", ("bootstrap: ", "an invitation", "sfnode join - --data-dir")),
        ("data = 'train.jsonl'", ("data = 'train.jsonl'", "whole path")),
        ("model = './model'", ("model = './model'", "whole path")),
        ("[network]\nlisten = []", ("'network'", "Known")),
        ("threads = ", ("not valid TOML", "line 1")),
    ],
)
def test_node_file__wrong_by_hand__names_file_field_and_what_is_known(
    text: str, parts: tuple[str, ...], directory: Path
) -> None:
    path = written(directory, text)
    for command in (("config", "show"), ("start",), ("join",)):
        outcome = call(*command, "--data-dir", directory)
        assert_teaches(outcome, str(path), *parts)


def test_node_file__every_setting__has_a_default_that_its_own_check_takes(directory: Path) -> None:
    defaults = {key: value for key, (value, _) in shown(directory).items() if value is not None}
    write_node_file(DataDirectory(directory), defaults)  # type: ignore[arg-type]  # what JSON brings
    assert {origin for key, (_, origin) in shown(directory).items() if key in defaults} == {"node.toml"}
    assert recall(NOTHING, frozenset(), DataDirectory(directory)).options == NOTHING


# --- the commands


def test_config_show__each_value__names_who_has_said_it(directory: Path) -> None:
    written(directory, f'threads = 3\nlisten = ["{LISTEN}"]\n')
    rows = shown(directory, "--threads", 4, "--bootstrap", PEER)
    assert rows["threads"] == (4, "command line") and rows["bootstrap"] == ([PEER], "command line")
    assert rows["listen"] == ([LISTEN], "node.toml")
    assert rows["model"] == (None, "default") and rows["neighbours-min"] == (0, "default")
    assert rows.keys() == SETTINGS.keys()
    text = call("config", "show", "--data-dir", directory).stdout.splitlines()
    assert [line.split() for line in text if line.startswith(("listen", "threads", "model"))] == [
        ["model", "default", "-"], ["threads", "node.toml", "3"], ["listen", "node.toml", f'["{LISTEN}"]'],
    ]  # fmt: skip
    assert read_node_file(DataDirectory(directory)) == {"threads": 3, "listen": [LISTEN]}


def test_config_set_and_unset__value__is_remembered_and_forgotten(directory: Path) -> None:
    outcome = config("set", "listen", LISTEN, "/ip4/127.0.0.1/tcp/4002", directory=directory)
    assert outcome.code == 0 and f"sfnode start --data-dir {directory}" in outcome.stdout
    config("set", "threads", "2", directory=directory)
    config("set", "upnp", "yes", directory=directory)
    held = {"listen": [LISTEN, "/ip4/127.0.0.1/tcp/4002"], "threads": 2, "upnp": True}
    assert read_node_file(DataDirectory(directory)) == held
    assert config("unset", "listen", directory=directory).stdout.startswith("listen is forgotten\n")
    assert config("unset", "listen", directory=directory).code == 0
    assert read_node_file(DataDirectory(directory)) == {"threads": 2, "upnp": True}


@pytest.mark.parametrize(
    ("key", "by"),
    [("threads", "path"), ("threads", "name"), ("threads", "beginning"), ("listen", "path"), ("listen", "name")],
)
def test_config_set_and_unset__node_at_the_end__is_that_one(
    key: str, by: str, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other commands take it there; here it was one value too many, or a wrong address."""
    if by != "path":
        monkeypatch.setattr("sfnode.run.default_directory.HOME", directory.parent)
    value = {"threads": "2", "listen": LISTEN}[key]
    node = {"path": directory, "name": directory.name, "beginning": directory.name[:-1]}[by]
    outcome = call("config", "set", key, value, node)
    assert outcome.code == 0 and f"sfnode start --data-dir {directory}" in outcome.stdout, outcome
    assert read_node_file(DataDirectory(directory)) == {"threads": {"threads": 2}, "listen": {"listen": [LISTEN]}}[key]
    assert call("config", "unset", key, node).code == 0
    assert read_node_file(DataDirectory(directory)) == {}


def test_config_set__value_that_begins_the_name_of_a_node__is_a_value(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sfnode.run.default_directory.HOME", directory.parent)
    assert call("config", "set", "pause-when", "steam", directory.name[:-1]).code == 0
    assert read_node_file(DataDirectory(directory)) == {"pause-when": ["steam", directory.name[:-1]]}


def test_config_set__user_without_a_home__is_no_node(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was an exception that nobody had foreseen."""
    monkeypatch.setattr("sfnode.run.default_directory.HOME", directory.parent)
    assert_teaches(call("config", "set", "listen", LISTEN, "~nobody-here"), "listen address '~nobody-here'")


def test_config_set__relative_path__is_kept_from_the_root_on(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_reviews(tmp_path / "dev.jsonl")
    assert config("set", "eval-data", "dev.jsonl", directory=directory).code == 0
    assert read_settings(DataDirectory(directory)) == {"eval-data": str(tmp_path / "dev.jsonl")}


def test_config_bootstrap__string_in_a_file_or_on_standard_input__is_read_there_and_its_invitation_named(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had to be typed in the open, and the invitation in it was dropped without a word."""
    invitation = new_invitation(small_manifest(admission="invite"), OWNER).text
    address = RunAddress(run_id=SIGNED.manifest.run_id, nodes=(parse_bootstrap(PEER),), run_model="m", run_data="d")
    (file := tmp_path / "string.txt").write_text(join_string(replace(address, invitation=invitation)))
    for given in (f"@{file}", "-"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(file.read_bytes())))
        assert shown(directory, "--bootstrap", given)["bootstrap"] == ([PEER], "command line")
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(file.read_bytes())))
        outcome = config("set", "bootstrap", given, directory=directory)
        assert outcome.code == 0 and read_node_file(DataDirectory(directory)) == {"bootstrap": [PEER]}
        assert f"invitation in it is left out: `sfnode join - --data-dir {directory}`" in outcome.stderr
    file.write_text(join_string(address))
    assert config("set", "bootstrap", f"@{file}", directory=directory).stderr == ""


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("lisen", LISTEN), ("'lisen'", "Known", "listen")),
        (("invite", "invite:x"), ("'invite'", "Known")),
        (("threads", "none"), ("threads = 'none'", "integer")),
        (("threads", "1", "2"), ("takes one value, not 2",)),
        (("upnp", "maybe"), ("upnp = 'maybe'", "boolean")),
        (("listen", "4001"), ("4001",)),
        (("announce", "4001"), ("4001",)),
        (("trusted-proxy", "here"), ("here",)),
        (("metrics", "x"), ("metrics", "'x'", "127.0.0.1:PORT")),
        (("bootstrap", "/ip4/203.0.113.7/tcp/4001"), ("203.0.113.7",)),
        (("bootstrap", f"sfnode:{'0' * 64}@{PEER}"), ("another run", "0" * 16)),
        (("data", "absent.jsonl"), ("absent.jsonl", "JSONL file")),
        (("eval-data", "absent.jsonl"), ("absent.jsonl", "JSONL file")),
        (("model", "absent/model"), ("--model", "absent/model", "not the run's model")),
    ],
)
def test_config_set__what_a_start_would_refuse__is_refused_and_nothing_is_written(
    arguments: tuple[str, ...], parts: tuple[str, ...], directory: Path
) -> None:
    assert_teaches(config("set", *arguments, directory=directory), *parts)
    assert read_node_file(DataDirectory(directory)) is None


def test_config_set_and_unset__wrong_field__is_put_right(directory: Path) -> None:
    written(directory, "threads = 0\nlisen = 3\n")
    assert_teaches(config("set", "threads", "2", directory=directory), "'lisen'")
    assert config("unset", "lisen", directory=directory).code != 0  # the other one is wrong, too
    written(directory, "threads = 0\n")
    assert config("set", "threads", "2", directory=directory).code == 0
    written(directory, "threads = 2\nlisen = 3\n")
    assert config("unset", "lisen", directory=directory).code == 0
    assert read_node_file(DataDirectory(directory)) == {"threads": 2}


def test_config__folder_without_a_node__says_so(tmp_path: Path) -> None:
    for arguments in (("show",), ("set", "threads", "1"), ("unset", "threads")):
        assert_teaches(config(*arguments, directory=tmp_path), str(tmp_path), "not a node's data directory")


def test_start__nothing_remembered__says_how_to_begin(directory: Path, tmp_path: Path) -> None:
    for folder in (directory, tmp_path / "absent"):
        assert_teaches(call("start", "--data-dir", folder), str(folder), NODE_FILE, f"sfnode join --data-dir {folder}")


def test_start__file_without_a_run__says_so(tmp_path: Path) -> None:
    written(tmp_path, "relay = true\n")
    assert_teaches(call("start", "--data-dir", tmp_path), str(tmp_path), MANIFEST_FILE)


def test_recall__command_that_names_a_file_here__is_remembered_so_that_it_runs_from_anywhere(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sfnode start` and `eval` from another folder did not find the program."""
    monkeypatch.chdir(tmp_path)
    for name in ("check.py", "words"):
        (tmp_path / name).touch()
    for typed, expected in (
        ("python3 -u check.py --of words", f"python3 -u {tmp_path}/check.py --of words"),
        ("./check.py 'a b'", f"{tmp_path}/check.py 'a b'"),
        ("check.py  no.py", "check.py  no.py"),
        ("sh -c 'exit", "sh -c 'exit"),
    ):
        options = JoinOptions(source=RunSource(), training=TrainingOptions(private_reward=typed))
        recalled = recall(options, frozenset({"private-reward"}), DataDirectory(directory))
        assert recalled.settings["private-reward"].value == expected


def test_model_of__copy_that_the_node_remembers__is_read_unless_another_is_typed_or_it_is_gone(
    directory: Path, tmp_path: Path
) -> None:
    """`eval`, `ask` and `export` asked for --model each time, where the run's model is a folder."""
    manifest, store = replace(SIGNED.manifest, model=no_model("local:mine")), DataDirectory(directory)
    (copy := tmp_path / "mine.gguf").touch()
    written(directory, f'model = "{copy}"\n')
    assert model_of(manifest, store, None, None) == str(copy)
    (other := tmp_path / "other.gguf").touch()
    assert model_of(manifest, store, str(other), None) == str(other)
    copy.unlink()
    with pytest.raises(OperatorError, match="--model is missing: the run's model is a local folder, mine"):
        model_of(manifest, store, None, None)
