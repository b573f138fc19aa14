"""Installs this checkout into the Python that runs it, so that no compiler is needed. Standard library only.

libp2p depends on fastecdsa, which has no ready-made wheel for Linux: pip would compile it, with gcc and GMP's headers.
sfnode never uses it (Noise with Ed25519 keys only) and starts without it. pip cannot be told to leave one dependency
out, so this installs libp2p alone, then what it asks for but fastecdsa, then sfnode itself.

    .venv/bin/python deploy/install.py --extras train,dev --editable
"""

import argparse
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
LEFT_OUT = "fastecdsa"
# pip ends a successful installation with these two lines, the first of them as an ERROR.
EXPECTED_COMPLAINT = ("pip's dependency resolver does not", f"requires {LEFT_OUT}")


def main() -> None:
    """Install in three steps; the first that fails ends it with pip's own message."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--extras", default="", help="comma-separated extras of pyproject.toml, e.g. train,dev")
    parser.add_argument("--editable", action="store_true", help="run from this checkout instead of from a copy")
    parser.add_argument("--unpinned", action="store_true", help="newest allowed versions instead of constraints.txt")
    parser.add_argument("--only-dependencies", action="store_true", help="leave sfnode itself out")
    options, pip_arguments = parser.parse_known_args()

    pins = [] if options.unpinned else ["-c", str(REPOSITORY / "constraints.txt")]
    wanted = requirements_of_sfnode(options.extras.split(","))
    libp2p = [line for line in wanted if name_of(line) == "libp2p"]
    pip_install("--no-deps", *pins, *libp2p, *pip_arguments)
    others = [line for line in (*wanted, *requirements_of_libp2p()) if name_of(line) not in ("libp2p", LEFT_OUT)]
    pip_install(*pins, *others, *pip_arguments)
    if options.only_dependencies:
        return
    pip_install("--no-deps", *(["-e"] if options.editable else []), str(REPOSITORY), *pip_arguments)


def requirements_of_sfnode(extras: list[str]) -> list[str]:
    """The dependencies in pyproject.toml and those of the extras."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    optional = project["optional-dependencies"]
    chosen = [extra for extra in extras if extra]
    if unknown := sorted(set(chosen) - set(optional)):
        sys.exit(f"install: no extra {', '.join(unknown)} in pyproject.toml; there are {', '.join(sorted(optional))}")
    return [*project["dependencies"], *(line for extra in chosen for line in optional[extra])]


def requirements_of_libp2p() -> list[str]:
    """What the installed libp2p asks for, without its own extras."""
    return [line for line in metadata.requires("libp2p") or [] if "extra ==" not in line]


def name_of(requirement: str) -> str:
    """`fastecdsa` for `fastecdsa==2.3.2; sys_platform != "win32"`."""
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower()


def pip_install(*arguments: str) -> None:
    """Run pip in this Python; its errors go to the terminal and end the installation."""
    command = [sys.executable, "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as pip:
        assert pip.stderr is not None
        for line in pip.stderr:
            if not any(text in line for text in EXPECTED_COMPLAINT):
                sys.stderr.write(line)
    if pip.returncode:
        sys.exit(pip.returncode)


if __name__ == "__main__":
    main()
