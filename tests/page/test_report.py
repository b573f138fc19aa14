"""The page as one file: whole, closed to the outside, and only of what was verified."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from protocol.errors import OperatorError, StorageDamagedError
from sfnode.api.runs import open_run
from sfnode.cli import cli
from sfnode.page.assets import single_file
from sfnode.page.report import publish_run, write_report
from sfnode.storage.data_directory import DataDirectory
from tests.support.made_pages import MadeNode


@pytest.fixture
def made(tmp_path: Path) -> MadeNode:
    (tmp_path / "node").mkdir(mode=0o700)
    node = MadeNode(tmp_path / "node")
    node.advance(60)
    node.store()
    return node


def data_in(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="view">(.*?)</script>', page, re.DOTALL)
    assert found
    plain: dict[str, Any] = json.loads(found.group(1))
    return plain


def test_report__finished_run__holds_what_was_verified(made: MadeNode, tmp_path: Path) -> None:
    replica = write_report(DataDirectory(made.directory), tmp_path / "run.html", lambda done, total: None)
    shown = data_in((tmp_path / "run.html").read_text("utf-8"))
    assert shown["verified"]["updates"] == 120 == sum(each["updates"] for each in shown["authors"])
    assert shown["verified"]["state_digest"] == replica.state_digest().hex()
    assert shown["evaluations"]["points"][-1][0] == 60
    assert shown["run"]["is_live"] is False


def test_report__its_policy__lets_in_its_own_script_and_style_alone(made: MadeNode, tmp_path: Path) -> None:
    write_report(DataDirectory(made.directory), tmp_path / "run.html", lambda done, total: None)
    page = (tmp_path / "run.html").read_text("utf-8")
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    for name in ("script", "style"):
        (content,) = re.findall(rf"<{name}>(.*?)</{name}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert re.findall(r'(?:src|href)="(?!data:)[^"]*"', page) == []
    assert len(page) < 300_000


def test_report__text_of_a_stranger__cannot_end_the_data_and_begin_a_script() -> None:
    page = single_file({"name": "</script><script>alert(1)</script><!--"}).decode()
    assert "alert(1)</script>" not in page
    assert data_in(page) == {"name": "</script><script>alert(1)</script><!--"}


def test_report__file_that_exists__is_left_alone(made: MadeNode, tmp_path: Path) -> None:
    (tmp_path / "run.html").write_text("mine")
    with pytest.raises(OperatorError, match="exists, and is never overwritten"):
        write_report(DataDirectory(made.directory), tmp_path / "run.html", lambda done, total: None)
    assert (tmp_path / "run.html").read_text() == "mine"


def test_report__record_that_was_changed__is_damage_and_writes_nothing(made: MadeNode, tmp_path: Path) -> None:
    with sqlite3.connect(made.directory / "ledger.sqlite3") as database:
        (record,) = database.execute("SELECT record FROM records WHERE arrival = 7").fetchone()
        database.execute("UPDATE records SET record = ? WHERE arrival = 7", (record[:-1] + bytes([record[-1] ^ 1]),))
    database.close()
    with pytest.raises(StorageDamagedError, match="record 7"):
        write_report(DataDirectory(made.directory), tmp_path / "run.html", lambda done, total: None)
    assert not (tmp_path / "run.html").exists()


def test_command__data_directory__writes_the_file_and_says_what_is_in_it(made: MadeNode, tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["report", str(made.directory), "--out", str(tmp_path / "run.html")])
    assert (result.exit_code, "120 updates verified, state digest" in result.output) == (0, True)


def test_publish__folder__has_the_page_and_a_log_that_proves_it(
    made: MadeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DataDirectory(made.directory).identity.made_seed()
    result = CliRunner().invoke(cli, ["report", str(made.directory), "--publish", str(tmp_path / "site")])
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in (tmp_path / "site").iterdir()) == ["index.html", "run.sflog", "verify.txt"]
    text = (tmp_path / "site" / "verify.txt").read_text("utf-8")
    commands = re.findall(r"^ +sfnode (.*)$", text, re.MULTILINE)
    monkeypatch.chdir(tmp_path / "site")
    copied = CliRunner().invoke(cli, commands[0].split())
    assert copied.exit_code == 0, copied.output
    shown = data_in((tmp_path / "site" / "index.html").read_text("utf-8"))
    assert shown["verified"]["state_digest"] in text
    assert open_run("my-copy").state().coefficients.digest().hex() in text
    assert commands[1] == "export --data-dir my-copy --model FOLDER --out my-model"  # the run's model is in no hub
    assert "FOLDER holds a copy of the base model, local:none" in text


def test_publish__model_of_the_hub__is_fetched_without_a_folder(made: MadeNode, tmp_path: Path) -> None:
    model = replace(made.manifest.model, id="owner/name")
    hub = MadeNode(tmp_path / "hub", manifest=replace(made.manifest, model=model))
    hub.directory.mkdir(mode=0o700)
    hub.advance(20)
    hub.store()
    DataDirectory(hub.directory).identity.made_seed()
    publish_run(DataDirectory(hub.directory), tmp_path / "site", lambda done, total: None)
    text = (tmp_path / "site" / "verify.txt").read_text("utf-8")
    assert "it fetches the base model, owner/name, once" in text and "--data-dir my-copy --out my-model" in text


def test_publish__fails_half_way__leaves_no_folder(made: MadeNode, tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"identity\.key"):
        publish_run(DataDirectory(made.directory), tmp_path / "site", lambda done, total: None)
    assert [path.name for path in tmp_path.iterdir()] == ["node"]


@pytest.mark.parametrize("options", [(), ("--out", "a.html", "--publish", "b")], ids=["neither", "both"])
def test_command__neither_file_nor_folder_or_both__says_what_each_is_for(options: tuple[str, ...]) -> None:
    result = CliRunner().invoke(cli, ["report", ".", *options])
    assert isinstance(result.exception, OperatorError) and "either --out FILE" in str(result.exception)


def test_command__no_data_directory__says_so(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["report", str(tmp_path), "--out", str(tmp_path / "run.html")])
    assert isinstance(result.exception, OperatorError) and "not a node's data directory" in str(result.exception)
