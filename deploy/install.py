"""Installs this checkout into the Python that runs it, without a compiler. Standard library only.

libp2p asks for fastecdsa in a release that has no ready-made wheel for Linux: pip would compile it, with gcc and GMP's
headers. sfnode never uses it. A wheel of sfnode has libp2p inside (setup.py); an editable installation gets libp2p's
own wheel here, without what it asks for, all of which pyproject.toml lists but fastecdsa.

    .venv/bin/python deploy/install.py --extras train,dev --editable
"""

import argparse
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import urllib.request
from collections import deque
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
# An argument that says where packages come from: then the choice of a build of PyTorch is the caller's.
CHOOSES_INDEX = re.compile(r"--(extra-)?index-url|-i$|--find-links|-f$|--no-index")
ANSWER_S = 5.0


def main() -> None:
    """Install in two steps, and compile; the first that fails ends it with pip's own message."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--extras", default="", help="comma-separated extras of pyproject.toml, e.g. train,dev")
    parser.add_argument("--editable", action="store_true", help="run from this checkout instead of from a copy")
    parser.add_argument("--unpinned", action="store_true", help="newest allowed versions instead of constraints.txt")
    parser.add_argument("--only-dependencies", action="store_true", help="leave sfnode itself out")
    parser.add_argument("--torch", choices=("auto", "cpu", "cuda"), default="auto", help="which build of PyTorch")
    options, pip_arguments = parser.parse_known_args()

    wanted = requirements_of_sfnode(options.extras.split(","))
    pins = [] if options.unpinned else ["-c", str(REPOSITORY / "constraints.txt")]
    if any(name_of(line) == "torch" for line in wanted):
        pip_arguments += torch_index(options.torch, pip_arguments)
    pip_install(*pins, *wanted, *pip_arguments)
    if not options.only_dependencies:
        ours = ["-e", str(REPOSITORY), libp2p()] if options.editable else [str(REPOSITORY)]
        pip_install("--no-deps", *ours, *pip_arguments)
    own = [REPOSITORY / name for name in ("protocol", "sfnode")] if options.editable else []
    compile_modules(Path(sysconfig.get_path("purelib")), Path(sysconfig.get_path("platlib")), *own)


def requirements_of_sfnode(extras: list[str]) -> list[str]:
    """The dependencies in pyproject.toml and those of the extras."""
    project = PYPROJECT["project"]
    optional = project["optional-dependencies"]
    chosen = [extra for extra in extras if extra]
    if unknown := sorted(set(chosen) - set(optional)):
        sys.exit(f"install: no extra {', '.join(unknown)} in pyproject.toml; there are {', '.join(sorted(optional))}")
    return [*project["dependencies"], *(line for extra in chosen for line in optional[extra])]


def libp2p() -> str:
    """`libp2p==0.8.1`, the release that sfnode's wheel has inside."""
    return str(PYPROJECT["tool"]["sfnode"]["bundled"]["requirement"])


def name_of(requirement: str) -> str:
    """`fastecdsa` for `fastecdsa==2.3.2; sys_platform != "win32"`."""
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower()


def torch_index(build: str, pip_arguments: list[str]) -> list[str]:
    """Return pip's arguments for the build of PyTorch that fits this machine, and say which it is."""
    if platform.system() != "Linux" or any(CHOOSES_INDEX.match(each) for each in pip_arguments):
        return []  # elsewhere there is one build for all
    card = card_of_this_machine()
    if build == "cuda" or (build == "auto" and card):
        say(f"PyTorch for CUDA, several gigabytes ({card or 'as asked for'})")
        return []
    if build == "auto" and not answers(f"{CPU_INDEX}/torch/"):
        say(f"no NVIDIA card found, but {CPU_INDEX} does not answer: PyTorch comes from where pip usually looks")
        return []
    say("PyTorch for the processor alone (no NVIDIA card found; --torch cuda takes the other)")
    return ["--extra-index-url", CPU_INDEX]


def card_of_this_machine() -> str:
    """Return the name of an NVIDIA card whose driver works; empty if there is none."""
    if not (tool := shutil.which("nvidia-smi")):
        return ""
    asked = [tool, "--query-gpu=name", "--format=csv,noheader"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False)
    return found.stdout.partition("\n")[0].strip() if found.returncode == 0 else ""


def answers(address: str) -> bool:
    """Return whether an index can be had: pip would try a silent one again and again, for minutes."""
    try:
        with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=ANSWER_S):
            return True
    except (OSError, ValueError):
        return False


def pip_install(*arguments: str) -> None:
    """Run pip in this Python and say which package comes; where it fails, its last lines end the installation."""
    command = [sys.executable, "-P", "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
    command.append("--no-compile")  # on one processor it takes almost half of pip's time
    last: deque[str] = deque(maxlen=40)
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            last.append(line)
            if text := news(line):
                say(text)
    if pip.returncode:
        sys.stderr.writelines(last)
        sys.exit(pip.returncode)


def compile_modules(*folders: Path) -> None:
    """Compile them on all processors. What cannot be is left: a file of another Python, or all without semaphores."""
    command = [sys.executable, "-P", "-W", "ignore", "-m", "compileall", "-qq", "-j", "0"]
    subprocess.run([*command, *dict.fromkeys(map(str, folders))], capture_output=True, check=False)


def news(line: str) -> str:
    """Return what a line of pip says to people, such as `downloading numpy-2.4.6 (16.1 MB)`; empty: nothing."""
    found = re.match(r"\s*(Downloading|Using cached|Building wheel for|Installing collected packages:) (.*)", line)
    if found is None or "finished" in found[2]:
        return ""
    if found[1].startswith("Installing"):
        return f"installing {found[2]}" if found[2].count(",") < 3 else f"installing {found[2].count(',') + 1} packages"
    name = re.sub(r"(-(cp|py|pp)\d\S*)?(\.whl|\.tar\.gz|\.metadata)", "", found[2].rpartition("/")[2])
    return "" if ".metadata" in found[2] else f"{found[1].lower()} {name}"


def say(text: str) -> None:
    """Print a line of progress at once, also into a pipe."""
    print(f"    {text}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
