"""Why does my node not contribute? Planted faults: `sfnode status` alone must name the cause of each, and fail."""

from __future__ import annotations

import datetime
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import psutil

from sfnode.demo import data_file, model_folder
from tests.people.person import GivenUpError, Person, owners_run
from tests.support.daemons import free_port
from tests.support.small_disk import CannotMountError, fill

_NAMED_WITHIN_S: Final = 60.0
_STEP_S: Final = 0.5
_DISK_KILOBYTES: Final = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What `status` said of one fault; ``failure`` is empty where it named the cause.

    A fault that cannot be planted on this machine has neither a code nor a failure.
    """

    fault: str
    code: int | None
    said: str
    failure: str = ""


class Village:
    """Owners' nodes that all faults share, and a newcomer for each of them."""

    def __init__(self, person: Person) -> None:
        self.person = person
        owners_run(person, "base", "--task", "embedded:reviews")
        owners_run(person, "other", "--task", "embedded:reviews", "--name", "another-run")
        self.base = self._owners_node("base")
        self.other = self._owners_node("other")

    def _owners_node(self, run: str) -> str:
        """Its address; it trains."""
        port = free_port()
        listen = f"/ip4/127.0.0.1/tcp/{port}"
        name = f"{run}-owner"
        self.person.start(name, "join", "--run", f"{run}.run", "--invite", self.invitation(run), "--listen", listen)
        self.person.wait_for_own_update(name)
        return str(self.person.wait_for_status(name, "join")).rpartition("@")[2]

    def invitation(self, run: str = "base") -> str:
        """A new one."""
        words = ("run", "invite", "--owner-key", f"{run}.key", "--run", f"{run}.run")
        return self.person.type(*words).strip()

    def newcomer(self, name: str, *words: object, invitation: str | None = "") -> subprocess.Popen[bytes]:
        """A node of the base run, admitted unless told otherwise."""
        invite = () if invitation is None else ("--invite", invitation or self.invitation())
        return self.person.start(name, "join", "--run", "base.run", "--bootstrap", self.base, *invite, *words)

    def at_work(self, name: str, *words: object) -> subprocess.Popen[bytes]:
        """The same, once it has contributed."""
        process = self.newcomer(name, *words)
        self.person.wait_for_own_update(name)
        return process

    def stopped(self, name: str, *words: object) -> None:
        """A node that trained, and was stopped by its operator."""
        self.person.start(name, *words)
        self.person.wait_for_own_update(name)
        self.person.type("stop", "--data-dir", name)


# --- the faults: each is planted in the node of its own name


def not_admitted(village: Village) -> None:
    """The run wants an invitation, and there is none."""
    village.newcomer("not_admitted", invitation=None)


def invitation_used_twice(village: Village) -> None:
    """A friend has used the same one."""
    invitation = village.invitation()
    village.newcomer("friend", invitation=invitation)
    village.person.wait_for_own_update("friend")
    village.newcomer("invitation_used_twice", invitation=invitation)


def expelled(village: Village) -> None:
    """The owner has excluded the author."""
    village.at_work("expelled")
    author = village.person.wait_for_status("expelled", "author")
    owner = ("--owner-key", "base.key", "--data-dir", "base-owner")
    village.person.type("run", "exclude", author, "--from-step", 0, *owner)


def bootstrap_gone(village: Village) -> None:
    """Nothing listens there any more."""
    gone = re.sub(r"/tcp/\d+", f"/tcp/{free_port()}", village.base)
    village.person.start(
        "bootstrap_gone", "join", "--run", "base.run", "--bootstrap", gone, "--invite", village.invitation()
    )


def bootstrap_of_another_run(village: Village) -> None:
    """The address is that of a node of another run."""
    words = ("join", "--run", "base.run", "--bootstrap", village.other, "--invite", village.invitation())
    village.person.start("bootstrap_of_another_run", *words)


def data_changed(village: Village) -> None:
    """The public data on this disk are no longer the run's."""
    data = village.person.folder / "reviews.jsonl"
    data.write_bytes(data_file("reviews", "train").read_bytes())
    owners_run(village.person, "public", "--task", "sst2", "--data", data, "--admission", "open")
    village.stopped("data_changed", "join", "--run", "public.run", "--data", data)
    data.write_bytes(data.read_bytes().rstrip(b"\n"))
    village.person.start("data_changed", "start")


def model_changed(village: Village) -> None:
    """The model in this folder is no longer the run's."""
    folder = village.person.folder / "model"
    shutil.copytree(model_folder(), folder)
    words = ("--model", folder, "--plain", "--task", "embedded:reviews", "--admission", "open", "--steps", 100_000)
    village.person.type("init", *words, "--out", "local.run")
    village.stopped("model_changed", "join", "--run", "local.run", "--model", folder)
    weights = next(folder.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-4] + b"\x00\x00\x00\x3f")
    village.person.start("model_changed", "start")


def worker_killed(village: Village) -> None:
    """The system takes the training process away, as it does when memory is short."""
    node = village.at_work("worker_killed")
    for child in psutil.Process(node.pid).children():
        child.kill()


def paused(village: Village) -> None:
    """Its operator has paused it, and has forgotten."""
    village.at_work("paused")
    village.person.type("pause", "--data-dir", "paused")


def outside_its_hours(village: Village) -> None:
    """It may work at other hours only."""
    hour = datetime.datetime.now().astimezone().hour
    village.newcomer("outside_its_hours", "--hours", f"{(hour + 3) % 24}-{(hour + 5) % 24}")


def killed(village: Village) -> None:
    """The node itself is gone without a word."""
    node = village.at_work("killed")
    node.kill()
    node.wait()


def frozen(village: Village) -> None:
    """It is there, and does nothing."""
    node = village.at_work("frozen")
    node.send_signal(signal.SIGSTOP)


def port_taken(village: Village) -> None:
    """Another program listens where this node is to listen."""
    port = re.findall(r"/tcp/(\d+)", village.base)[0]
    village.newcomer("port_taken", "--listen", f"/ip4/127.0.0.1/tcp/{port}")


def memory_too_small(village: Village) -> None:
    """It may not take what the model needs."""
    village.newcomer("memory_too_small", "--max-memory", "100MB")


def key_gone(village: Village) -> None:
    """Somebody has removed the node's key."""
    village.stopped(
        "key_gone", "join", "--run", "base.run", "--bootstrap", village.base, "--invite", village.invitation()
    )
    (village.person.folder / "key_gone" / "identity.key").unlink()
    village.person.start("key_gone", "start")


def disk_full(village: Village) -> None:
    """Something else has filled the disk on which the node keeps its state."""
    disk = village.person.disk("disk_full", kilobytes=_DISK_KILOBYTES)
    village.at_work("disk_full")
    fill(disk)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The exit code of `status`, and what names the cause."""

    plant: Callable[[Village], None]
    code: int
    words: str


FAULTS: Final[Mapping[str, Expected]] = {
    each.plant.__name__: each
    for each in (
        Expected(plant=not_admitted, code=4, words="not admitted: ask the owner"),
        Expected(plant=invitation_used_twice, code=4, words="the string to join is used"),
        Expected(plant=expelled, code=5, words="excluded by the owner from step 0 on"),
        Expected(plant=bootstrap_gone, code=3, words="connection refused"),
        Expected(plant=bootstrap_of_another_run, code=3, words="other run: "),
        Expected(plant=data_changed, code=1, words="is not the run's data"),
        Expected(plant=model_changed, code=1, words="are not the run's: their content is"),
        Expected(plant=worker_killed, code=6, words="the training worker has ended (killed by SIGKILL"),
        Expected(plant=paused, code=6, words="this node is paused: by `sfnode pause`"),
        Expected(plant=outside_its_hours, code=6, words="this node is paused: outside "),
        Expected(plant=killed, code=1, words="it was killed"),
        Expected(plant=frozen, code=1, words="it hangs"),
        Expected(plant=port_taken, code=1, words="Address already in use"),
        Expected(plant=memory_too_small, code=1, words="--max-memory is"),
        Expected(plant=key_gone, code=1, words="identity.key"),
        Expected(plant=disk_full, code=1, words="disk is full"),
    )
}


def look(village: Village, name: str) -> Named:
    """Plant the fault, then ask `status` until it names the cause, for a minute at most."""
    with ExitStack() as nodes:
        person = village.person
        village.person = Person(person.folder, nodes)
        try:
            FAULTS[name].plant(village)
            return _asked(village.person, name)
        except CannotMountError as error:
            return Named(fault=name, code=None, said=f"NOT PLANTED: {error}")
        except GivenUpError as error:
            return Named(fault=name, code=None, said="", failure=f"could not be planted: {error}")
        finally:
            village.person = person


def _asked(person: Person, name: str) -> Named:
    expected, until = FAULTS[name], time.monotonic() + _NAMED_WITHIN_S
    while True:
        code, said = person.ask("status", "--data-dir", name)
        if code == expected.code and expected.words in said:
            return Named(fault=name, code=code, said=said)
        if time.monotonic() > until:
            wanted = f"wanted {expected.code} and '{expected.words}'"
            return Named(fault=name, code=code, said=said, failure=wanted)
        time.sleep(_STEP_S)


def table(rows: Sequence[Named]) -> str:
    """One line for each fault: the exit code, and the text."""
    lines = [f"{'planted fault':<26} code  what sfnode status says"]
    for row in rows:
        text = row.said if not row.failure else f"NOT NAMED ({row.failure}): {row.said}"
        lines.append(f"{row.fault.replace('_', ' '):<26} {row.code!s:>4}  {text}")
    named = sum(row.code is not None and not row.failure for row in rows)
    return "\n".join([*lines, f"{named} of {len(rows)} faults named by status alone"])
