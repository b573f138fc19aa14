"""Encrypted copies of a key: what comes back, what is told apart, and that a lost key is missed."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from protocol.crypto.keys import KEY_BYTES, Signer
from protocol.errors import OperatorError
from protocol.run.admission import AdmissionKind, AdmissionSpec, has_work
from protocol.run.manifest import Manifest, sign_manifest
from sfnode import keys
from sfnode.keys import node_seed, read_backup, write_backup
from sfnode.reporter import Reporter
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.key_file import IDENTITY_FILE, KeyFile
from sfnode.storage.record_store import Store
from tests.support.cli_calls import Outcome, assert_teaches, call
from tests.support.manifests import OWNER, small_manifest

SEED = b"alice".ljust(32, b".")
AUTHOR = Signer(SEED).author.hex()
PASSPHRASE = "correct horse battery staple"
SIGNED = sign_manifest(small_manifest(), OWNER)


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scrypt that costs a millisecond."""
    monkeypatch.setattr(keys, "_N", 1 << 10)


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """A backup of SEED under PASSPHRASE."""
    write_backup(tmp_path / "my.backup", SEED, PASSPHRASE)
    return tmp_path / "my.backup"


@pytest.fixture
def passphrase_file(tmp_path: Path) -> Path:
    path = tmp_path / "passphrase"
    path.touch(0o600)
    path.write_text(f"{PASSPHRASE}\n")
    return path


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The data directory of a node that has run as SEED."""
    store = Store(DataDirectory(tmp_path / "node"), SIGNED)
    store.save_author(Signer(SEED).author)
    store.close()
    KeyFile(tmp_path / "node" / IDENTITY_FILE).store(SEED)
    return tmp_path / "node"


def changed(path: Path, **fields: object) -> None:
    held: dict[str, Any] = json.loads(path.read_text())
    path.write_text(json.dumps(held | fields))


# --- the file


def test_backup__right_passphrase__gives_the_key_back_and_says_its_parameters(backup: Path) -> None:
    assert read_backup(backup, PASSPHRASE) == SEED
    assert backup.stat().st_mode & 0o777 == 0o600
    held = json.loads(backup.read_text())
    assert (held["format"], held["author"]) == ("sfnode/key-backup/1", AUTHOR)
    assert (held["n"], held["r"], held["p"]) == (1 << 10, 8, 1)
    assert SEED.hex() not in backup.read_text() and [path.name for path in backup.parent.iterdir()] == ["my.backup"]


def test_backup__same_key_twice__shares_no_secret_bytes(backup: Path, tmp_path: Path) -> None:
    write_backup(tmp_path / "other", SEED, PASSPHRASE)
    one, other = (json.loads(path.read_text()) for path in (backup, tmp_path / "other"))
    assert not {one[name] for name in ("salt", "nonce", "sealed")} & {other[n] for n in ("salt", "nonce", "sealed")}


def test_backup__costs__are_those_that_were_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()
    write_backup(tmp_path / "real", SEED, PASSPHRASE)
    assert json.loads((tmp_path / "real").read_text())["n"] == 1 << 17
    assert read_backup(tmp_path / "real", PASSPHRASE) == SEED


def test_backup__wrong_passphrase__is_told_from_damage(backup: Path) -> None:
    with pytest.raises(OperatorError, match="the passphrase is wrong"):
        read_backup(backup, PASSPHRASE + "!")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"sealed": "00" * 48}, "the content was changed"),
        ({"sealed": ""}, "the content was changed"),
        ({"author": "00" * 32}, "the content was changed"),
        ({"nonce": "00" * 12}, "the content was changed"),
        ({"nonce": "00"}, "another length"),
        ({"sealed": "zz"}, "not hexadecimal"),
        ({"n": 1 << 30}, "parameters"),
        ({"n": 1_000}, "parameters"),
        ({"n": 0}, "parameters"),
        ({"r": 1 << 20}, "parameters"),
        ({"p": -1}, "parameters"),
        ({"n": "1024"}, "backup.n"),
        ({"more": 1}, "more"),
        ({"format": "sfnode/key-backup/2"}, "update it"),
        ({"format": "something"}, "parameters"),
    ],
)
def test_backup__changed_field__is_damage_and_says_which(backup: Path, fields: dict[str, object], reason: str) -> None:
    changed(backup, **fields)
    with pytest.raises(OperatorError, match=reason) as raised:
        read_backup(backup, PASSPHRASE)
    assert "passphrase is wrong" not in str(raised.value)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\x00", b'"text"', b"[" * 100_000])
def test_backup__no_backup__is_damage(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(OperatorError, match="is damaged, or no backup of a key"):
        read_backup(tmp_path / "file", PASSPHRASE)


def test_backup__every_flipped_byte__is_never_another_key(backup: Path, tmp_path: Path) -> None:
    data = backup.read_bytes()
    for place in range(0, len(data), 3):
        (tmp_path / "flipped").write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        try:
            assert read_backup(tmp_path / "flipped", PASSPHRASE) == SEED  # white space, or the case of a digit
        except OperatorError:
            continue


def test_write_backup__short_passphrase_or_file_that_exists__is_refused(backup: Path, tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="never overwritten"):
        write_backup(backup, SEED, PASSPHRASE)
    with pytest.raises(OperatorError, match="too short"):
        write_backup(tmp_path / "new", SEED, "1234567")
    assert not (tmp_path / "new").exists()


# --- the commands


def restore(file: Path, directory: Path, passphrase_file: Path) -> Outcome:
    return call("id", "restore", file, "--data-dir", directory, "--passphrase-file", passphrase_file)


def test_id_backup__and_restore__give_the_key_back(directory: Path, tmp_path: Path, passphrase_file: Path) -> None:
    file = tmp_path / "my.backup"
    told = call("id", "backup", file, "--data-dir", directory, "--passphrase-file", passphrase_file, "--json")
    assert told.code == 0 and json.loads(told.stdout) == {"author": AUTHOR, "file": str(file)}
    assert_teaches(restore(file, directory, passphrase_file), "never overwritten", IDENTITY_FILE)
    (directory / IDENTITY_FILE).unlink()
    assert restore(file, directory, passphrase_file).code == 0
    assert KeyFile(directory / IDENTITY_FILE).seed() == SEED
    assert restore(file, tmp_path / "elsewhere", passphrase_file).code == 0
    assert (tmp_path / "elsewhere").stat().st_mode & 0o777 == 0o700


def test_id_backup__key_of_an_owner__says_how_to_restore_it(tmp_path: Path, passphrase_file: Path) -> None:
    KeyFile(tmp_path / "owner.key").store(SEED)
    file, given = tmp_path / "my.backup", ("--key", tmp_path / "owner.key", "--passphrase-file", passphrase_file)
    assert call("id", "backup", file, *given).stdout.endswith(f"restore  sfnode id restore {file} --key FILE\n")


def test_id_restore__directory_of_another_identity__is_refused(
    directory: Path, tmp_path: Path, passphrase_file: Path
) -> None:
    write_backup(tmp_path / "other", b"bob".ljust(32, b"."), PASSPHRASE)
    (directory / IDENTITY_FILE).unlink()
    assert_teaches(restore(tmp_path / "other", directory, passphrase_file), AUTHOR, "new directory")
    assert not (directory / IDENTITY_FILE).exists()


def test_id_backup__no_terminal_and_no_file__asks_for_the_file(directory: Path, tmp_path: Path) -> None:
    assert_teaches(call("id", "backup", tmp_path / "b", "--data-dir", directory), "--passphrase-file")


def test_id_backup__keys_of_a_terminal_with_another_encoding__are_refused(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def typed(_prompt: str) -> str:
        return b"\xe9".decode("utf-8")

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("click.termui.hidden_prompt_func", typed)
    assert_teaches(call("id", "backup", tmp_path / "b", "--data-dir", directory), "encoding", "--passphrase-file")


def test_id_backup__passphrase_that_others_can_read__is_refused(
    directory: Path, tmp_path: Path, passphrase_file: Path
) -> None:
    passphrase_file.chmod(0o644)
    outcome = call("id", "backup", tmp_path / "b", "--data-dir", directory, "--passphrase-file", passphrase_file)
    assert_teaches(outcome, "chmod 600")
    assert not (tmp_path / "b").exists()


# --- a key that is missing


async def test_node_seed__key_is_lost__no_new_one_is_made_in_its_place(directory: Path) -> None:
    key, manifest, reporter = directory / IDENTITY_FILE, SIGNED.manifest, Reporter(is_json=True)
    assert await node_seed(manifest, DataDirectory(directory), is_training=True, reporter=reporter) == SEED
    key.unlink()
    for is_training in (True, False):
        with pytest.raises(OperatorError, match=f"{AUTHOR} has run .* sfnode id restore .* sfnode id new --out"):
            await node_seed(manifest, DataDirectory(directory), is_training=is_training, reporter=reporter)
    assert not key.exists()


async def test_node_seed__relay_without_work_is_to_train_and_its_key_is_moved_away__one_with_work_is_found(
    tmp_path: Path,
) -> None:
    """The message of a key without work says so; to miss that key would leave no way to train here."""
    data_dir, reporter = DataDirectory(tmp_path), Reporter(is_json=True)
    admission = AdmissionSpec(kind=AdmissionKind.OPEN, pow_bits=5)
    signed = sign_manifest(replace(small_manifest(), admission=admission), OWNER)
    manifest = signed.manifest
    without = next(seed for seed in map(bytes, product(range(256), repeat=KEY_BYTES)) if not is_fit(manifest, seed))
    store = Store(data_dir, signed)
    store.save_author(Signer(without).author)
    store.close()
    data_dir.identity.store(without)
    assert await node_seed(manifest, data_dir, is_training=False, reporter=reporter) == without
    with pytest.raises(OperatorError, match="Move it away, and `sfnode join` finds a new one"):
        await node_seed(manifest, data_dir, is_training=True, reporter=reporter)
    data_dir.identity.path.rename(tmp_path / "moved")
    assert is_fit(manifest, await node_seed(manifest, data_dir, is_training=True, reporter=reporter))


def is_fit(manifest: Manifest, seed: bytes) -> bool:
    return has_work(manifest.admission, manifest.run_id, Signer(seed).author)


async def test_node_seed__new_directory__makes_a_key(tmp_path: Path) -> None:
    Store(DataDirectory(tmp_path), SIGNED).close()
    seed = await node_seed(SIGNED.manifest, DataDirectory(tmp_path), is_training=True, reporter=Reporter(is_json=True))
    assert KeyFile(tmp_path / IDENTITY_FILE).seed() == seed
