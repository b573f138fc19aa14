"""What pyproject.toml cannot say: a wheel of sfnode has libp2p inside it, so that pip, pipx and uv need no compiler.

libp2p asks for fastecdsa in a release that has no wheel for Linux; sfnode never uses it, and a requirement of a
requirement cannot be left out (docs/decisions/0036-libp2p-inside-the-wheel.md). pyproject.toml names the release of
libp2p and its hash, and asks for the rest of what libp2p needs.
"""

import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).resolve().parent
BUNDLED = tomllib.loads((HERE / "pyproject.toml").read_text("utf-8"))["tool"]["sfnode"]["bundled"]
# The release of libp2p also has folders named docs, examples and interop, and a program for each example.
TAKEN = ("libp2p/", "libp2p-")


def fetch(folder: Path) -> Path:
    """Put the wheel of libp2p into ``folder``, checked by its hash, and return where it is."""
    carried = list((HERE / "bundled").glob("libp2p-*.whl"))  # in an sdist
    if carried:
        return carried[0]
    with tempfile.TemporaryDirectory() as temporary:
        asked = Path(temporary) / "requirements.txt"
        asked.write_text(f"{BUNDLED['requirement']} --hash=sha256:{BUNDLED['sha256']}\n", "utf-8")
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        subprocess.run([*pip, "--dest", str(folder), "-r", str(asked)], check=True)
    return next(folder.glob("libp2p-*.whl"))


class BuildWithLibp2p(build_py):
    """Unpacks libp2p into sfnode/bundled of what is built; sfnode/network looks for it there."""

    def run(self) -> None:
        """Build our packages, then add libp2p's; an editable installation has libp2p from deploy/install.py."""
        super().run()
        if self.editable_mode:
            return
        with tempfile.TemporaryDirectory() as temporary, zipfile.ZipFile(fetch(Path(temporary))) as wheel:
            members = [name for name in wheel.namelist() if name.startswith(TAKEN)]
            wheel.extractall(Path(self.build_lib) / "sfnode" / "bundled", members)


class SourceWithLibp2p(sdist):
    """Puts libp2p's wheel into the archive of sources: building from it needs no network."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Copy our files, then add the wheel."""
        super().make_release_tree(base_dir, files)
        folder = Path(base_dir) / "bundled"
        folder.mkdir()
        wheel = fetch(folder)
        if wheel.parent != folder:
            (folder / wheel.name).write_bytes(wheel.read_bytes())


if __name__ == "__main__":
    setup(cmdclass={"build_py": BuildWithLibp2p, "sdist": SourceWithLibp2p})
