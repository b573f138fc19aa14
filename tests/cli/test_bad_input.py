"""What an operator can get wrong on the command line or in a file: one line says what, where, and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sfnode import extras
from sfnode.storage.data_directory import DataDirectory, decode_run_file
from sfnode.storage.key_file import IDENTITY_FILE
from tests.support.cli_calls import assert_teaches, call
from tests.support.daemons import demo_run, write_run

INIT = ("init", "--model", "embedded:tiny-opt", "--task", "embedded:reviews")
PEER = "12D3KooWNtad85FCBXiYiRW4EpMg3ZCjyq2LoDG6qs9hc8VaHeaX"


@pytest.fixture(scope="module")
def run_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A valid run on the embedded model."""
    path = tmp_path_factory.mktemp("run") / "good.run"
    write_run(demo_run(steps=8), path)
    return path


# --- flags of init and testnet ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("--steps", "-5"), ("--steps", "-5", "x>=1")),
        (("--steps", "0"), ("--steps", "x>=1")),
        (("--batch-rows", "0"), ("--batch-rows", "x>=1")),
        (("--directions", "0"), ("--directions", "x>=1")),
        (("--directions", "3"), ("--batch-rows 16: not a multiple of --directions 3 / --shares 1 (the default)",)),
        (("--local-steps", "3"), ("the steps of an epoch, 1024: not a multiple of --local-steps 3",)),
        (("--rank", "3"), ("--rank 3", "power of two")),
        (("--max-tokens", "2"), ("--max-tokens 2", "4 ...")),
        (("--learning-rate", "0"), ("--learning-rate 0", "such as 0.001")),
        (("--learning-rate", "nan"), ("--learning-rate nan", "such as 0.001")),
        (("--learning-rate", "1e30"), ("--learning-rate 1e+30", "such as 0.001")),
        (("--learning-rate", "fast"), ("--learning-rate", "fast")),
        (("--core", "sparse"), ("--core", "sparse", "canonical", "rademacher", "dense")),
        (("--bits", "3"), ("--bits", "3", "2", "4", "8")),
        (("--trainable", "everything"), ("--trainable", "everything", "linear")),
        (("--task", "sst3"), ("--task", "sst3", "sst2")),
    ],
    ids=" ".join,
)
def test_init__bad_flag__names_flag_value_and_what_is_allowed(
    arguments: tuple[str, str], parts: tuple[str, ...], tmp_path: Path
) -> None:
    out = tmp_path / "new.run"
    assert_teaches(call(*INIT, "--out", out, *arguments), *parts)
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("--nodes", "0"), ("--nodes", "1<=x<=256")),
        (("--late", "-1"), ("--late", "0<=x<=256")),
        (("--steps", "-3"), ("--steps", "x>=1")),
        (("--learning-rate", "-1"), ("--learning-rate -1", "such as 0.001")),
        (("--labels", " no"), ("--labels", "two or more")),
        (("--data", "absent.jsonl"), ("absent.jsonl", "JSONL")),
    ],
    ids=" ".join,
)
def test_testnet__bad_flag__names_flag_value_and_what_is_allowed(
    arguments: tuple[str, str], parts: tuple[str, ...], tmp_path: Path
) -> None:
    assert_teaches(call("testnet", "--dir", tmp_path / "net", *arguments), *parts)


# --- what is learnt ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"--template": None}, ("--template", "--labels", "--task sst2")),
        ({"--labels": " no"}, ("--labels", "two or more")),
        ({"--labels": " no, no"}, ("--labels", "different")),
        ({"--labels": '"no","yes"'}, ("--labels", "leave brackets and quotes out")),
        ({"--labels": '[" no", " yes"]'}, ("--labels", "leave brackets and quotes out")),
        ({"--completion": " {sentence}"}, ("--labels", "--completion", "leave one of them out")),
        ({"--template": "{sentence It was"}, ("template", "'}'")),
        ({"--template": "It was"}, ("template", "braces", "{sentence}")),
        ({"--data": None}, ("--data is missing", "JSONL", "--private-data")),
        ({"--data": "absent.jsonl"}, ("absent.jsonl", "JSONL file")),
        ({"--data": "embedded:films"}, ("films", "embedded data", "reviews/train")),
        ({"--model": "embedded:huge"}, ("huge", "tiny-opt")),
    ],
    ids=str,
)
def test_init__task_that_does_not_fit__says_what_is_wrong_with_it(
    changes: dict[str, str | None], parts: tuple[str, ...], tmp_path: Path
) -> None:
    options: dict[str, Any] = {
        "--model": "embedded:tiny-opt",
        "--template": "{sentence} It was",
        "--labels": " no, yes",
        "--data": "embedded:reviews",
    } | changes
    arguments = [part for pair in options.items() if pair[1] is not None for part in pair]
    assert_teaches(call("init", "--out", tmp_path / "new.run", *arguments), *parts)


@pytest.mark.parametrize(
    ("lines", "parts"),
    [
        ("", ("no examples",)),
        ("\n\n", ("no examples",)),
        ('{"sentence": "a", "label": 0}\n{"sentence": "b"\n', (":2", "not JSON")),
        ('{"sentence": "a", "label": 0}\n\n{"sentence": "b"}\n', (":3", "'label' is missing")),
        ('{"text": "a", "label": 0}\n', (":1", "'sentence' is missing")),
        ('{"sentence": "a", "label": 7}\n', (":1", "label 7", "0 ... 1")),
        ('{"sentence": "a", "label": "7"}\n', (":1", "label 7", "0 ... 1")),
        ('["a", 0]\n', (": item 1", "JSON object")),
        ('{"sentence": 3.5, "label": 0}\n', (":1", "text")),
        ("\udcff\n", ("UTF-8",)),
    ],
)
def test_init__malformed_jsonl__names_file_and_line(lines: str, parts: tuple[str, ...], tmp_path: Path) -> None:
    data = tmp_path / "train.jsonl"
    data.write_bytes(lines.encode("utf-8", "surrogateescape"))
    task = ("--template", "{sentence} It was", "--labels", " no, yes", "--data", data)
    outcome = call("init", "--model", "embedded:tiny-opt", *task, "--out", tmp_path / "new.run")
    assert_teaches(outcome, str(data), *parts)


# --- files of the owner -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("steps = 4\n[method\nrank = 8\n", ("not valid TOML", "line 2")),
        ("steps = 4\nname = [\n", ("not valid TOML", "line 2")),
        ("stesp = 4\n", ("unknown field 'stesp'", "known are", "steps")),
        ("[method]\nrnak = 4\n", ("manifest.method", "unknown field 'rnak'", "rank")),
        ("format = 7\n", ("format 7", "format 6", "install")),
        ("method = 3\n", ("manifest.method", "3")),
        ("[schedule]\nkind = 'cosine'\n", ("schedule.kind", "cosine", "linear")),
        ("name = '\udcff'\n", ("UTF-8",)),
    ],
)
def test_init__bad_settings_file__names_line_or_field(text: str, parts: tuple[str, ...], tmp_path: Path) -> None:
    settings = tmp_path / "run.toml"
    settings.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert_teaches(call(*INIT, "--out", tmp_path / "new.run", "--settings", settings), *parts)


@pytest.mark.parametrize(
    ("out", "key", "part"),
    [
        ("x.key", None, "the run's key gets that name"),
        ("x.basis", None, "the run's basis gets that name"),
        ("x.run", "x.run", "choose another file"),
        ("x.run", "./x.run", "choose another file"),
        ("x.run", "x.basis", "choose another file"),
    ],
)
def test_init__run_key_and_basis_in_one_file__is_refused_before_anything_is_made(
    out: str, key: str | None, part: str, tmp_path: Path
) -> None:
    """The run was written over the key that had just been made: nobody could ever sign for it again."""
    given = () if key is None else ("--owner-key", tmp_path / key)
    assert_teaches(call(*INIT, "--out", tmp_path / out, *given), part, "hoose another")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [("status", "--data-dir"), ("log", "verify"), ("id", "show", "--data-dir")])
def test_path__tilde_that_no_shell_has_looked_at__is_the_users_home(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    told = call(*command, "~/nowhere")
    assert told.code != 0 and str(tmp_path / "nowhere") in told.stderr, told


def test_init__file_that_exists__is_not_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "old.run"
    out.write_text("precious")
    assert_teaches(call(*INIT, "--out", out), str(out), "exists", "never overwritten")
    assert out.read_text() == "precious"


def test_init__owner_key_that_is_not_a_key__says_so(tmp_path: Path) -> None:
    key = tmp_path / "owner.key"
    key.touch(0o600)
    key.write_text("not hexadecimal")
    assert_teaches(call(*INIT, "--out", tmp_path / "new.run", "--owner-key", key), str(key), "backup")


# --- the run file -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        (b'"steps":8', b'"steps":9', ("signature does not fit", "changed")),
        (b'"steps":8', b'"step":1,"steps":8', ("unknown field 'step'", "known are")),
        (b'"format":6', b'"format":7', ("format 7", "format 6", "install")),
        (b'"steps":8', b'"steps":-8', ("manifest.steps", "-8")),
        (b'"steps":8', b'"steps": 8', ("canonical",)),
        (b'{"admission"', b'{"admissi', ("not JSON",)),
        (b"\n", b"", ("not a run file", "one line of JSON")),
    ],
)
def test_join__run_file_that_was_changed__says_what_is_wrong(
    old: bytes, new: bytes, parts: tuple[str, ...], run_file: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.run"
    bad.write_bytes(run_file.read_bytes().replace(old, new))
    assert_teaches(call("join", "--run", bad, "--data-dir", tmp_path / "node"), str(bad), *parts)
    assert not (tmp_path / "node").exists()


def test_run_file__as_windows_leaves_it__is_read(run_file: Path, tmp_path: Path) -> None:
    (left := tmp_path / "windows.run").write_bytes(b"\xef\xbb\xbf" + run_file.read_bytes().replace(b"\n", b"\r\n"))
    assert decode_run_file(left) == decode_run_file(run_file)


def test_join__no_run_named__asks_for_the_string(tmp_path: Path) -> None:
    for arguments in ((), ("--data-dir", tmp_path / "node")):
        assert_teaches(call("join", *arguments), "`sfnode join -` asks for the string", "--run", "`sfnode start`")


@pytest.mark.parametrize("word", ["hello", "my-run", "203.0.113.7:4001", "invite:abc"])
def test_join__any_other_word__is_told_what_to_paste(word: str) -> None:
    assert_teaches(call("join", word), f"'{word}' is not a string to join", "from sfnode: to its end", "sfnode join -")


def test_init__other_file_as_owner_key__is_not_taken_for_a_key_that_others_can_read(
    run_file: Path, tmp_path: Path
) -> None:
    """It asked for `chmod 600 my.run`, and to make a new key."""
    run_file.chmod(0o644)
    outcome = call(*INIT, "--out", tmp_path / "new.run", "--owner-key", run_file)
    assert_teaches(outcome, f"{run_file} is not an identity", "64 hexadecimal digits")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("--model", "facebook/opt-125m"), ("--model facebook/opt-125m", "not the run's model", "embedded:tiny-opt")),
        (("--model", "."), ("--model .", "not the run's model", "embedded:tiny-opt")),
        (("--data", "README"), ("no data file README", "JSONL")),
        (("--eval-data", "absent"), ("no data file absent",)),
        (("--listen", "/ip4/1.2.3/tcp/4001"), ("listen address '/ip4/1.2.3/tcp/4001'", "octets")),
        (("--listen", "0.0.0.0:4001"), ("listen address '0.0.0.0:4001'", "/ip4/<address>/tcp/<port>")),
        (("--listen", "/dns/example.org/tcp/4001"), ("listen address", "/ip4/0.0.0.0/tcp/<port>")),
        (("--listen", "/ip4/192.0.2.77/tcp/4001"), ("/ip4/192.0.2.77/tcp/4001", "no such address", "0.0.0.0")),
        (("--announce", "/ip4/0.0.0.0/tcp/4001"), ("announce address", "cannot dial", "public")),
        (("--bootstrap", "/ip4/127.0.0.1/tcp/4001"), ("bootstrap address", "peer id is missing", "/p2p/")),
        (("--bootstrap", f"/ip4/127.0.0.1/tcp/70000/p2p/{PEER}"), ("bootstrap address", "70000", "port")),
        (("--bootstrap", "/ip4/127.0.0.1/tcp/4001/p2p/12D3"), ("bootstrap address", "'12D3'", "12D3KooW")),
        (("--trusted-proxy", "10.0.0.300"), ("--trusted-proxy '10.0.0.300'", "10.0.0.7", "10.0.0.0/24")),
        (("--neighbours-min", "-1"), ("--neighbours-min", "x>=0")),
        (("--eval-every", "-1"), ("--eval-every", "x>=0")),
        (("--threads", "0"), ("--threads", "1<=x<=1024")),
        (("--threads", "2147483647"), ("--threads", "1<=x<=1024")),
        (("--device", "tpu"), ("--device", "tpu", "cuda")),
    ],
    ids=lambda value: " ".join(value[:2]),
)
def test_join__bad_flag__names_flag_value_and_what_is_allowed(
    arguments: tuple[str, str], parts: tuple[str, ...], run_file: Path, tmp_path: Path
) -> None:
    assert_teaches(call("join", "--run", run_file, "--data-dir", tmp_path / "node", *arguments), *parts)


def test_join__address_that_does_not_fit__says_what_is_wrong(run_file: Path, tmp_path: Path) -> None:
    node = f"/ip4/127.0.0.1/tcp/4001/p2p/{PEER}"
    join = ("join", "--data-dir", tmp_path / "node")
    assert_teaches(call(*join, f"sfnode:12ab@{node}"), "sfnode:RUN_ID@", "64 hexadecimal digits", "Copy it whole")
    assert_teaches(call(*join, "--bootstrap", f"sfnode:{'0' * 64}"), "sfnode:RUN_ID@", "Copy it whole")
    of_two = (f"sfnode:{'0' * 64}@{node}", "--bootstrap", f"sfnode:{'1' * 64}@{node}")
    assert_teaches(call(*join, *of_two), "two runs", "0" * 16, "1" * 16)
    outcome = call(*join, "--run", run_file, f"sfnode:{'0' * 64}@{node}")
    assert_teaches(outcome, str(run_file), decode_run_file(run_file).manifest.run_id.hex()[:16], "0" * 16)
    assert not (tmp_path / "node").exists()


def test_join__malformed_bootstrap_without_run_file__fails_at_once(tmp_path: Path) -> None:
    outcome = call("join", "--bootstrap", "203.0.113.7:4001", "--data-dir", tmp_path / "node")
    assert_teaches(outcome, "'203.0.113.7:4001' is not a string to join", "sfnode join -")


@pytest.mark.parametrize(
    "command",
    [
        (*INIT, "--out", "new.run"),
        ("join", "--run", "RUN", "--data-dir", "node"),
        ("eval", "--data-dir", "node"),
        ("export", "--data-dir", "node", "--out", "model"),
        ("testnet", "--dir", "net"),
        ("bench", "step"),
    ],
    ids=lambda command: command[0],
)
def test_training_command__install_without_torch__says_what_to_install(
    command: tuple[str, ...], run_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "torch" else extras)
    outcome = call(*(str(run_file) if part == "RUN" else part for part in command))
    assert_teaches(outcome, "needs torch", "-m pip install 'sfnode[train]'", "join --relay")


# --- data directories -------------------------------------------------------------------------------------------


def test_join__data_directory_that_cannot_be_made__says_where_and_why(run_file: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outcome = call("join", "--run", run_file, "--data-dir", tmp_path / "file" / "node")
    assert_teaches(outcome, str(tmp_path / "file" / "node"), "Not a directory")


def test_join__refused_twice_in_a_folder_of_somebody_elses__leaves_it_as_it_is(run_file: Path, tmp_path: Path) -> None:
    """The node's last words took the place of a user's end.json, and made the folder a node's for the next try."""
    join = ("join", "--run", run_file, "--relay", "--data-dir", tmp_path)
    tmp_path.chmod(0o755)
    (tmp_path / "end.json").write_text("my notes")
    assert_teaches(call(*join, "--upnp"), "--upnp needs a port")
    (tmp_path / "end.json").rename(tmp_path / "letter.txt")
    for _ in range(2):
        assert_teaches(call(*join), "holds other files, such as 'letter.txt'")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["my notes"]


def test_join__node_of_another_run_is_there__keeps_its_last_words(run_file: Path, tmp_path: Path) -> None:
    write_run(demo_run(steps=9), tmp_path / "manifest.run")
    DataDirectory(tmp_path).end.write("the disk was full")
    assert_teaches(call("join", "--run", run_file, "--relay", "--data-dir", tmp_path), "belongs to run")
    assert DataDirectory(tmp_path).end.describe().endswith("the disk was full")


@pytest.mark.parametrize(
    "command", [("status", "--data-dir"), ("log", "verify"), ("log", "show"), ("eval", "--data-dir")], ids=" ".join
)
def test_reading_command__folder_without_node__says_so(command: tuple[str, ...], tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "absent"):
        assert_teaches(call(*command, folder), str(folder), "not a node's data directory", "manifest.run")


def test_export__folder_without_node__says_so(tmp_path: Path) -> None:
    outcome = call("export", "--data-dir", tmp_path, "--out", tmp_path / "out")
    assert_teaches(outcome, str(tmp_path), "not a node's data directory", "manifest.run")


def test_export__adapter_in_another_number_format__is_refused_before_anything_is_read(tmp_path: Path) -> None:
    """--dtype was passed over without a word."""
    given = ("export", "--data-dir", tmp_path, "--out", tmp_path / "out", "--format", "peft")
    for dtype in ("bf16", "fp16"):
        assert_teaches(call(*given, "--dtype", dtype), f"--dtype {dtype}", "without any rounding", "Leave --dtype out")
    assert_teaches(call(*given, "--dtype", "fp32"), "not a node's data directory")


def test_reading_command__node_that_never_started__says_so(run_file: Path, tmp_path: Path) -> None:
    (tmp_path / "manifest.run").write_bytes(run_file.read_bytes())
    for command in (("log", "verify"), ("log", "show"), ("eval", "--data-dir")):
        assert_teaches(call(*command, tmp_path), str(tmp_path), "not started yet")
    assert_teaches(call("status", "--data-dir", tmp_path), "no node runs", str(tmp_path), "sfnode join --data-dir")


# --- identities -------------------------------------------------------------------------------------------------


def test_id__wrong_use__says_what_to_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert_teaches(call("id", "show"), "there is no node in ~/.sfnode", "--data-dir")
    both = call("id", "show", "--data-dir", tmp_path, "--key", tmp_path / "a.key")
    assert_teaches(both, "either --data-dir or --key")
    assert_teaches(call("id", "show", "--data-dir", tmp_path), str(tmp_path / IDENTITY_FILE), "sfnode id new")


@pytest.mark.parametrize("content", [b"", b"zz" * 32, b"ab" * 31, b"\xff\xfe"])
def test_id__file_that_is_not_a_key__says_so(content: bytes, tmp_path: Path) -> None:
    key = tmp_path / "a.key"
    key.touch(0o600)
    key.write_bytes(content)
    assert_teaches(call("id", "show", "--key", key), str(key), "64 hexadecimal digits", "backup")


def test_id__new_over_an_old_key__leaves_the_old_one(tmp_path: Path) -> None:
    key = tmp_path / "a.key"
    assert call("id", "new", "--out", key).code == 0
    before = key.read_bytes()
    assert_teaches(call("id", "new", "--out", key), str(key), "never overwritten")
    assert key.read_bytes() == before
