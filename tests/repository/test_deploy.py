"""The Compose file and the container image, as far as they can be tested where no container engine is at hand: their
form by the tools that people use, their commands by running them as plain processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import REPOSITORY
from tests.support.commands import commands_in, parse_command
from tests.support.daemons import free_port
from tests.support.forked_program import program_at
from tests.support.patience import Patience, wait_for_end

COMPOSE_FILE = REPOSITORY / "docker-compose.yml"
DOCKERFILE = REPOSITORY / "deploy" / "Dockerfile"
HEALTHCHECK = REPOSITORY / "deploy" / "healthcheck.py"
NODES = ("bootstrap", "worker-1", "worker-2", "worker-3", "late-joiner")
START_LIMIT_S = 60.0


def compose() -> dict[str, Any]:
    """The Compose file with its anchors resolved."""
    content: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text("utf-8"))
    return content


def script_of(service: dict[str, Any]) -> str:
    """What a service runs in the shell by default; Compose writes `$$` for a dollar."""
    assert service["entrypoint"] == ["sh", "-euc"]
    assert len(service["command"]) == 1
    return re.sub(r"(?<!\$)\$\{\w+:-([^}]*)\}", r"\1", str(service["command"][0])).replace("$$", "$")


# --- form


def test_compose__up_alone__starts_the_toy_network_and_no_node_of_ones_own() -> None:
    """Every service was behind a profile: `docker compose up` said "no service selected" and ended."""
    profiles: dict[str, list[str]] = {}
    for name, service in compose()["services"].items():
        profiles.setdefault("".join(service.get("profiles", [])), []).append(name)
    assert profiles == {"join": ["node"], "": ["invite", *NODES], "gpu": ["gpu-worker"]}


def test_compose__node_that_joins__has_one_folder_of_its_owner_and_ports_of_this_machine_alone() -> None:
    service = compose()["services"]["node"]
    assert service["volumes"] == ["${NODE_FOLDER:-./node}:/own"]
    assert service["user"] == "${NODE_USER:-10001:10001}" and service["read_only"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    places = {*re.findall(r"/own/([\w./]*)", script_of(service)), *service["environment"].values()}
    assert places == {"node", "node/node.toml", "string.txt", "train.", "/own", "/own/models", "/own/huggingface"}
    assert service["healthcheck"]["test"][-1] == "/own/node/status.json"


@pytest.mark.parametrize("data", ["train.jsonl", "train.csv", ""])
@pytest.mark.parametrize("has_joined", [True, False], ids=["joined", "new"])
def test_compose__node_that_joins__takes_the_string_once_and_rows_where_there_are_some(
    has_joined: bool, data: str, tmp_path: Path
) -> None:
    """Rows in a CSV file were not seen: the node asked for data that lay there."""
    (tmp_path / "node").mkdir()
    (tmp_path / "sfnode").write_text('#!/bin/sh\necho "$*"\n')
    (tmp_path / "sfnode").chmod(0o755)
    for name in filter(None, ["node/node.toml" if has_joined else "", data]):
        (tmp_path / name).touch()
    script = script_of(compose()["services"]["node"]).replace("/own", str(tmp_path))
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    said = subprocess.run(["sh", "-euc", script], env=path, capture_output=True, text=True, check=True).stdout
    assert said.startswith("join --data-dir" if has_joined else f"join @{tmp_path}/string.txt")
    assert (f"--data {tmp_path}/{data} " in said) == (bool(data) and not has_joined)


def test_compose__other_ports_of_this_machine__are_those_that_the_node_names() -> None:
    """The log said to open port 8420, where another one was published."""
    service = compose()["services"]["node"]
    named = dict(re.findall(r"--(web|metrics) 0\.0\.0\.0:(\S+?)(?:;|\s)", f"{service['command'][0]} "))
    assert named == {"web": "${WEB_PORT:-8420}", "metrics": "${METRICS_PORT:-9464}"}
    assert service["ports"] == [f"127.0.0.1:{port}:{port}" for port in named.values()]
    assert "0.0.0.0:8420" not in str(service) and "0.0.0.0:9464" not in str(service)


def test_compose__node_with_two_files_of_rows__asks_which(tmp_path: Path) -> None:
    """It took the first by name."""
    for name in ("train.csv", "train.csv.bak"):
        (tmp_path / name).touch()
    script = script_of(compose()["services"]["node"]).replace("/own", str(tmp_path))
    ended = subprocess.run(["sh", "-euc", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 2 and "train.csv.bak. Leave one" in ended.stderr


def test_compose__nodes__have_a_volume_of_their_own_and_a_healthcheck() -> None:
    content = compose()
    volumes = {name: content["services"][name]["volumes"][0] for name in (*NODES, "gpu-worker")}
    assert volumes == {name: f"{name}-data:/data" for name in (*NODES, "gpu-worker")}
    assert {volume.partition(":")[0] for volume in volumes.values()} | {"invitation", "owner"} == set(
        content["volumes"]
    )
    for name in NODES:
        assert content["services"][name]["healthcheck"]["test"][1:] == healthcheck_of_image()


def test_compose__run__is_by_invitation_and_no_node_has_the_owners_key() -> None:
    """It was an open run, whose owner's key lay in the volume of a node that strangers reach."""
    services = compose()["services"]
    script = script_of(services["invite"])
    assert "--admission invite" in script and "--owner-key /owner/owner.key" in script
    toy = {name: each for name, each in services.items() if name != "node"}
    with_owner = [name for name, each in toy.items() if any(text.startswith("owner:") for text in each["volumes"])]
    assert with_owner == ["invite"] and services["invite"]["network_mode"] == "none"
    for name in (*NODES, "gpu-worker"):
        assert services[name]["environment"]["NODE"] == name and f" {name}" in script
        assert services[name]["volumes"][-1] == "invitation:/invitation:ro" and len(services[name]["volumes"]) == 2


def test_compose__owners_key__is_copied_out_without_what_a_build_says() -> None:
    """`docker compose run` builds `invite` first, and writes what the build says to its own standard output."""
    page = (REPOSITORY / "docs" / "guide.md").read_text("utf-8")
    assert compose()["services"]["invite"]["pull_policy"] == "build"
    assert "$ docker compose cp invite:/owner/owner.key owner.key\n" in page
    assert not re.findall(r"^\$ docker compose run .*>.*$", page, re.MULTILINE)


def test_compose__removed_by_the_page__leaves_no_image_and_no_volume() -> None:
    """The volumes stayed, that of the toy's owner's key among them, and so did the image for graphics cards."""
    page = (REPOSITORY / "docs" / "uninstall.md").read_text("utf-8")
    (command,) = re.findall(r"`docker compose (.*?down.*?)`", page)
    profiles = {each for service in compose()["services"].values() for each in service.get("profiles", [])}
    assert set(re.findall(r"--profile (\w+)", command)) == profiles
    assert command.endswith("down --volumes --rmi all")


@pytest.mark.parametrize("name", ["node", *NODES, "gpu-worker"])
def test_compose__logs_of_a_node__are_lines_for_people(name: str) -> None:
    """`docker compose up` filled the terminal with two kilobytes of JSON a second from each node of the toy."""
    assert "--json" not in script_of(compose()["services"][name])


@pytest.mark.parametrize("name", ["node", "invite", *NODES, "gpu-worker"])
def test_compose__each_service__has_a_limit_of_memory_and_processes(name: str) -> None:
    service = compose()["services"][name]
    assert re.fullmatch(r"\$\{\w+:-\d+g\}", service["mem_limit"]) and 0 < service["pids_limit"] <= 512


def test_compose__each_image__is_built_by_one_service_and_runs_without_writing_its_root() -> None:
    services = compose()["services"]
    built = {service["image"]: name for name, service in services.items() if "build" in service and name != "node"}
    assert built == {"sfnode:cpu": "invite", "sfnode:cuda": "gpu-worker"}
    assert services["node"]["build"] == services["invite"]["build"]
    assert {service["image"] for service in services.values()} == set(built)
    assert services["gpu-worker"]["build"]["args"]["TORCH"] == "cuda"
    for name in (*NODES, "gpu-worker"):
        service = services[name]
        assert (service["read_only"], service["tmpfs"], service["restart"]) == (True, ["/tmp"], "unless-stopped")
        assert service["logging"]["options"] == {"max-size": "10m", "max-file": "3"}


@pytest.mark.parametrize("profiles", ["", "join", "gpu"])
def test_compose__read_by_the_real_tool__is_valid(profiles: str) -> None:
    tool = ["docker-compose"] if shutil.which("docker-compose") else ["docker", "compose"]
    if not shutil.which(tool[0]) or subprocess.run([*tool, "version"], capture_output=True, check=False).returncode:
        pytest.skip("no Compose tool on this machine: apt-get install docker-compose")
    command = [*tool, "-f", str(COMPOSE_FILE), "config", "--quiet"]
    profile = {**os.environ, "COMPOSE_PROFILES": profiles}
    result = subprocess.run(command, env=profile, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


def test_dockerfile__read_by_the_linter__has_no_finding() -> None:
    linter = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if linter is None:
        pytest.skip("no hadolint on this machine; its package is made for Linux on x86_64 only")
    result = subprocess.run([linter, str(DOCKERFILE)], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, "")


def test_dockerfile__what_it_copies__is_not_ignored() -> None:
    """A file that .dockerignore hides would only be missed when an image is built."""
    ignored = (REPOSITORY / ".dockerignore").read_text("utf-8").splitlines()
    allowed = {line[1:].removesuffix("/**") for line in ignored if line.startswith("!")}
    copies = re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE.read_text("utf-8"), re.MULTILINE)
    wanted = {name for sources in copies for name in sources.split()}
    assert wanted == allowed
    assert all((REPOSITORY / name).exists() for name in wanted)


# --- commands


@pytest.mark.parametrize("name", ["node", *NODES, "invite", "gpu-worker"])
def test_compose__command_of_a_service__is_one_that_the_command_line_takes(name: str) -> None:
    commands = commands_in(script_of(compose()["services"][name]))
    assert commands
    for command in commands:
        parse_command(command)


def healthcheck_of_image() -> list[str]:
    match = re.search(r"HEALTHCHECK .*?CMD (\[.*?\])", DOCKERFILE.read_text("utf-8"), re.DOTALL)
    assert match is not None
    command: list[str] = json.loads(match[1])
    return command


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (None, "no node runs here: "),
        ({"pid": 0, "time": 0.0}, "the node has not reported for "),
        ({"pid": 1 << 30, "time": 9e9}, "no node runs here: "),
        # A container of `--scale` that started again and again was called healthy by the status of the one that ran.
        ({"pid": os.getpid(), "time": 9e9}, "no node of this container runs here: "),
    ],
    ids=["none", "old", "gone", "another container's"],
)
def test_healthcheck__no_node_or_a_silent_one__fails_in_a_line(
    status: dict[str, float] | None, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "status.json"
    if status is not None:
        path.write_text(json.dumps(status), "utf-8")
    command = [sys.executable, "-I", "-S", str(HEALTHCHECK), str(path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr.startswith(said) and result.stderr.count("\n") == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Stands in for the containers: folders for volumes, loopback for the network, one `sfnode` on the path."""

    folder: Path
    port: int

    def script(self, name: str) -> str:
        """A service's script with its paths and addresses on this machine."""
        script = script_of(compose()["services"][name])
        listen = self.port if name in ("invite", "bootstrap") else 0
        script = script.replace("/ip4/0.0.0.0/tcp/4001", f"/ip4/127.0.0.1/tcp/{listen}")
        script = script.replace("/dns4/bootstrap/tcp/4001", f"/dns4/localhost/tcp/{self.port}")
        for folder in ("invitation", "owner"):
            script = re.sub(rf"(?<=[\s@>])/{folder}\b", str(self.folder / folder), script)
        return re.sub(r"(?<=[\s])/data\b", str(self.volume(name)), script)

    def volume(self, name: str) -> Path:
        path = self.folder / ("bootstrap" if name == "invite" else name)
        path.mkdir(exist_ok=True)
        return path

    def environment(self, name: str = "") -> dict[str, str]:
        """With what Compose gives to a service."""
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "LATE_JOIN_SECONDS": "1", "OMP_NUM_THREADS": "1", "NODE": name}

    def invite(self) -> None:
        """Run the service that runs once."""
        with self.started("invite") as process:
            assert wait_for_end(process, START_LIMIT_S) == 0

    @contextmanager
    def started(self, name: str) -> Iterator[subprocess.Popen[bytes]]:
        """A service while it runs; whatever happens, nothing of it is left behind."""
        with (self.folder / f"{name}.log").open("wb") as log:
            command = ["sh", "-euc", self.script(name)]
            process = subprocess.Popen(
                command, env=self.environment(name), stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def health(self, name: str) -> dict[str, Any]:
        """What the healthcheck prints; {} when it fails."""
        given = {
            "python": sys.executable,
            "/opt/sfnode/healthcheck.py": str(HEALTHCHECK),
            "/data/status.json": str(self.volume(name) / "status.json"),
        }
        test = compose()["services"][name]["healthcheck"]["test"]
        command = [given.get(part, part) for part in test[1:]]
        result = subprocess.run(command, env=self.environment(), capture_output=True, text=True, check=False)
        return json.loads(result.stdout) if result.returncode == 0 else {}

    def wait_healthy(self, name: str, *, updates: int = 0) -> dict[str, Any]:
        """The status once the healthcheck passes and so many updates are held."""
        patience = Patience(START_LIMIT_S)
        while not patience.is_over():
            status = self.health(name)
            if status and status["updates"] >= updates:
                return status
            time.sleep(0.5)
        raise AssertionError(f"{name} is not healthy:\n{(self.folder / f'{name}.log').read_text()[-2_000:]}")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    for folder in ("bin", "invitation", "owner"):
        (tmp_path / folder).mkdir()
    with program_at(tmp_path / "bin" / "sfnode"):
        yield Stage(folder=tmp_path, port=free_port())


@pytest.mark.process(is_long=True)
@pytest.mark.timeout(240)
def test_compose__its_commands_as_processes__train_one_run_and_stop_cleanly(stage: Stage) -> None:
    stage.invite()
    with stage.started("bootstrap") as bootstrap:
        stage.wait_healthy("bootstrap")
        with stage.started("worker-1") as worker, stage.started("late-joiner") as late:
            states = [stage.wait_healthy(name, updates=6) for name in ("worker-1", "late-joiner")]
            assert {state["run_id"] for state in states} == {stage.health("bootstrap")["run_id"]}
            processes = (late, worker, bootstrap)
            for process in processes:
                process.send_signal(signal.SIGTERM)
            assert [process.wait(10) for process in processes] == [0, 0, 0]
    assert stage.health("bootstrap") == {}


def test_compose__invited_twice__keeps_the_first_run(tmp_path: Path) -> None:
    stage = Stage(folder=tmp_path, port=1)
    stage.volume("invite")
    (tmp_path / "invitation").mkdir()
    (tmp_path / "invitation" / "bootstrap").write_text("kept\n")
    subprocess.run(["sh", "-euc", stage.script("invite")], env=stage.environment(), check=True)
    assert (tmp_path / "invitation" / "bootstrap").read_text() == "kept\n"
    assert not list(stage.volume("invite").iterdir())


@pytest.mark.parametrize("has_joined", [False, True], ids=["waits", "joins"])
def test_compose__late_joiner__waits_once_and_can_be_stopped_meanwhile(has_joined: bool, tmp_path: Path) -> None:
    """Stopped in its first minute it ended with 143, and each restart waited again."""
    stage = Stage(folder=tmp_path, port=1)
    for folder in ("bin", "invitation"):
        (tmp_path / folder).mkdir()
    for name, script in {"sleep": "kill -TERM $PPID", "sfnode": "echo joined"}.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "invitation" / "bootstrap").write_text("an address\n")
    if has_joined:
        (stage.volume("late-joiner") / "manifest.run").touch()
    command = ["sh", "-euc", stage.script("late-joiner")]
    result = subprocess.run(command, env=stage.environment("late-joiner"), stdout=subprocess.PIPE, check=False)
    assert (result.returncode, result.stdout) == (0, b"joined\n" if has_joined else b"")
