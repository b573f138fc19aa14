"""Builds the image, starts the Compose file's nodes, waits until all are healthy and hold one digest, removes all.

    python -m tests.containers

Says so and ends with 0 where no engine answers; with 1 when something fails, after the last lines of each node.
PYTHON_VERSION, CPU_INDEX and PIP_ARGS in the environment reach the build, STEPS the run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click

from tests.support.patience import Patience

REPOSITORY: Final = Path(__file__).resolve().parent.parent.parent
PROJECT: Final = "sfnode-compose-test"
IMAGE: Final = "sfnode:cpu"
IMAGE_BYTES_MAX: Final = 1_400_000_000
NODES: Final = ("bootstrap", "worker-1", "worker-2", "worker-3", "late-joiner")
STEPS: Final = "1000"  # the bootstrap makes some hundreds alone, and the late joiner comes after a minute
LIMIT_S: Final = 600.0  # for all nodes to be healthy, and later without a new update anywhere
POLL_S: Final = 2.0
ANSWER_S: Final = 120.0
LINES_TOLD: Final = 30  # of what a command printed that failed
HEALTHCHECK: Final = ("python", "-I", "-S", "/opt/sfnode/healthcheck.py", "/data/status.json")


class CheckFailed(Exception):
    """What does not hold, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What one node holds."""

    digest: str
    updates: int
    authors: int
    is_finished: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerEngine:
    """Attributes:
    compose: the words that start Compose.
    """

    compose: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=lambda: {"STEPS": STEPS, **os.environ})

    def run_compose(self, *words: str, limit_s: float = ANSWER_S) -> str:
        """What Compose prints on its standard output."""
        command = [*self.compose, "-p", PROJECT, "-f", str(REPOSITORY / "docker-compose.yml"), *words]
        return self._run(command, limit_s)

    def run_docker(self, *words: str) -> str:
        return self._run(["docker", *words], ANSWER_S)

    def _run(self, command: list[str], limit_s: float) -> str:
        result = subprocess.run(
            command, env=self.environment, stdout=subprocess.PIPE, text=True, timeout=limit_s, check=False
        )
        if result.returncode:
            click.echo("\n".join(result.stdout.splitlines()[-LINES_TOLD:]), err=True)  # BuildKit tells its reasons here
            raise CheckFailed(f"{' '.join(command)} ended with {result.returncode}")
        return result.stdout


def main() -> int:
    """Exit code."""
    why_not, engine = find_engine()
    if engine is None:
        click.echo(f"compose-test SKIPPED, nothing was tested: {why_not}", err=True)
        return 0
    try:
        check(engine)
    except (CheckFailed, subprocess.TimeoutExpired) as error:
        click.echo(f"compose-test FAILED: {error}", err=True)
        click.echo(engine.run_compose("logs", "--tail", "5"), err=True)
        return 1
    finally:
        engine.run_compose("down", "--volumes", "--timeout", "10")
    click.echo("compose-test: all hold; containers, volumes and network are removed, the image is kept")
    return 0


def find_engine() -> tuple[str, ContainerEngine | None]:
    """Why there is none, or the engine."""
    if shutil.which("docker") is None:
        return "there is no `docker` command here", None
    if _fails("docker", "info"):
        return "no engine answers `docker info`: none runs, or it is not open to this user", None
    for compose in (("docker", "compose"), ("docker-compose",)):
        if shutil.which(compose[0]) and not _fails(*compose, "version"):
            return "", ContainerEngine(compose=compose)
    return "neither `docker compose` nor `docker-compose` is installed", None


def _fails(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False, timeout=ANSWER_S).returncode != 0


def check(engine: ContainerEngine) -> None:
    """Each stage with its time; CheckFailed."""
    started = time.monotonic()
    engine.run_compose("build", limit_s=3_600.0)
    started = _tell("image built", started)
    image_bytes = int(engine.run_docker("image", "inspect", "--format", "{{.Size}}", IMAGE))
    click.echo(f"image size: {image_bytes / 1e9:.2f} GB")
    if image_bytes > IMAGE_BYTES_MAX:
        raise CheckFailed(f"the image is larger than {IMAGE_BYTES_MAX / 1e9:.1f} GB")
    engine.run_compose("up", "--detach", "--no-build", limit_s=LIMIT_S)
    started = _tell("bootstrap healthy, all containers started", started)
    containers = {name: engine.run_compose("ps", "--quiet", name).strip() for name in NODES}
    wait_healthy(engine, containers)
    started = _tell("all five nodes healthy", started)
    state = wait_equal(engine, containers)
    _tell(f"one digest, {state.digest[:16]}, of {state.updates} updates by {state.authors} nodes", started)


def _tell(text: str, since: float) -> float:
    now = time.monotonic()
    click.echo(f"{text}: {now - since:.0f} s")
    return now


def wait_healthy(engine: ContainerEngine, containers: dict[str, str]) -> None:
    """Until the engine itself calls every node healthy; a container that has ended fails at once."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        states = {name: health_of(engine, container) for name, container in containers.items()}
        if set(states.values()) == {"running healthy"}:
            return
        ended = [name for name, state in states.items() if not state.startswith("running ")]
        if ended or time.monotonic() > deadline:
            raise CheckFailed(f"not all nodes are healthy: {states}")
        time.sleep(POLL_S)


def health_of(engine: ContainerEngine, container: str) -> str:
    """What the engine says of it, such as "running healthy"."""
    return engine.run_docker("inspect", "--format", "{{.State.Status}} {{.State.Health.Status}}", container).strip()


def wait_equal(engine: ContainerEngine, containers: dict[str, str]) -> State:
    """Until all nodes have made their last step and hold one digest. CheckFailed unless each of them contributed."""
    found: dict[str, State] = {}
    patience = Patience(LIMIT_S, progress=lambda: [state.updates for state in found.values()])
    while True:
        found.update({name: state_of(engine, container) for name, container in containers.items()})
        (first, *others) = found.values()
        if first.is_finished and first.digest and all(other == first for other in others):
            break
        if patience.is_over():
            raise CheckFailed(f"no new update for {LIMIT_S:.0f} s, and not one digest: {found}")
        time.sleep(POLL_S)
    if first.authors != len(NODES):
        raise CheckFailed(f"{first.authors} of {len(NODES)} nodes contributed; STEPS=2000 gives the others more time")
    return first


def state_of(engine: ContainerEngine, container: str) -> State:
    """As its healthcheck prints it."""
    status = json.loads(engine.run_docker("exec", container, *HEALTHCHECK))
    return State(
        digest=status["state_digest"],
        updates=status["updates"],
        authors=status["authors"],
        is_finished=status["is_finished"],
    )


if __name__ == "__main__":
    sys.exit(main())
