"""An invitation on the command line is covered in the process list, and the rest of the line stays as it was."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sfnode.children.command_line_secrets import cover
from tests.support.running_nodes import command_of, wait_until

INVITATION = "invite:kq3xyz"
STRING = "sfnode:v1.mzxw6ytb"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["sfnode", "join", STRING, "--data", "x"], ["sfnode", "join", "*" * len(STRING), "--data", "x"]),
        (["join", "--invite", INVITATION, "--json"], ["join", "--invite", "*" * len(INVITATION), "--json"]),
        (["join", f"--invite={INVITATION}"], ["join", f"--invite={'*' * len(INVITATION)}"]),
        (["join", "--invite=half", "--invite", "half"], ["join", "--invite=****", "--invite", "****"]),
        (["join", f"--bootstrap=\u201c{STRING.upper()}"], ["join", "--bootstrap=\u201c" + "*" * len(STRING)]),
        (["join", "sfnode:v1.mz", "xw6y", "tb", "--json"], ["join", "*" * 12, "****", "**", "--json"]),
        (["join", STRING, "/ip4/1.2.3.4", "x"], ["join", "*" * len(STRING), "/ip4/1.2.3.4", "x"]),
        (["join", "@file", "--invite", "@file", "--invite=-"], ["join", "@file", "--invite", "@file", "--invite=-"]),
        (["join", "sfnode:ab@/ip4/1.2.3.4", "x"], ["join", "sfnode:ab@/ip4/1.2.3.4", "x"]),
        (["run", "invite", "--count", "3"], ["run", "invite", "--count", "3"]),
    ],
)
def test_cover__command_line__only_secrets_are_stars_and_no_length_changes(words: list[str], shown: list[str]) -> None:
    line = "\0".join([*words, ""]).encode()
    assert cover(line) == "\0".join([*shown, ""]).encode()
    assert len(cover(line)) == len(line)


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says where the command line lies in memory")
@pytest.mark.parametrize("given", [(STRING,), ("--invite", INVITATION)], ids=["string", "invitation"])
def test_join__invitation_typed__is_gone_from_the_process_list_while_it_runs(
    given: tuple[str, ...], tmp_path: Path
) -> None:
    waits = "import sys, time\nfrom sfnode.__main__ import main\nprint(sys.argv[1:], flush=True)\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", waits, *given], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().decode() == f"{[*given]}\n"  # what it works with is whole
        shown = command_of(process.pid)
        process.kill()
    assert given[-1].encode() not in shown and b"*" * len(given[-1]) in shown, shown


@pytest.mark.process
def test_join__string_typed__is_covered_in_the_real_command_from_the_first_second_on(tmp_path: Path) -> None:
    """A run that nobody serves: the node goes on asking, so that there is time to look."""
    command = [sys.executable, "-m", "sfnode", "join", "--bootstrap", f"/ip4/192.0.2.1/tcp/1/p2p/x{INVITATION}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: b"*" * len(INVITATION) in command_of(process.pid), "stars in the process list", 10.0)
        process.kill()
