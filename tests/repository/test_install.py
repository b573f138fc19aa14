"""What is installed: the lock holds every requirement, the wheel has libp2p inside, and nothing needs a compiler."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from sfnode.network import bundled_libp2p
from tests import REPOSITORY

PAGES_THAT_INSTALL = ("install", "quickstart", "upgrade", "volunteer")


def script(name: str) -> ModuleType:
    """A script of the repository that is no package of ours: deploy/install.py."""
    spec = importlib.util.spec_from_file_location(Path(name).stem, REPOSITORY / name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def installer() -> ModuleType:
    return script("deploy/install.py")


def pins() -> list[str]:
    lines = (REPOSITORY / "constraints.txt").read_text("utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]


def normalised(names: Iterable[str]) -> set[str]:
    return {re.sub(r"[-_.]+", "-", name).lower() for name in names}


def pinned() -> set[str]:
    return normalised(line.partition("==")[0] for line in pins())


def test_lock__every_line__is_one_exact_version_and_no_place() -> None:
    assert [line for line in pins() if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []


def test_lock__requirements_of_sfnode_and_libp2p__are_all_pinned() -> None:
    install = installer()
    wanted = [*install.requirements_of_sfnode(["train", "web", "dev"]), install.libp2p()]
    assert normalised(map(install.name_of, wanted)) - pinned() == {"pip"}  # whatever pip installs with


def test_lock__python_of_debian_12__is_new_enough_for_every_pin() -> None:
    """`make demo` failed there after a minute and a half of fetching: one pin asked for 3.11.5."""
    asked: dict[str, str] = {}
    for name in pinned():
        with suppress(metadata.PackageNotFoundError):  # of another system
            asked[name] = metadata.metadata(name)["Requires-Python"] or ""
    assert len(asked) > 100
    assert {name: text for name, text in asked.items() if not SpecifierSet(text).contains("3.11.2")} == {}


def test_lock__torch__is_of_the_range_that_pyproject_allows() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    assert "torch>=2.6" in project["optional-dependencies"]["train"]
    assert "torch==2.13.0" in pins()


def needs_of_libp2p() -> dict[str, Requirement]:
    """What the installed libp2p asks for on this system, without its own extras."""
    found = [Requirement(line) for line in metadata.requires("libp2p") or []]
    return {normalised([each.name]).pop(): each for each in found if each.marker is None or each.marker.evaluate()}


def test_install__libp2p__still_asks_for_the_package_that_is_left_out() -> None:
    """Once it no longer does, libp2p can be a requirement like others, and setup.py can go."""
    needs = needs_of_libp2p()
    assert str(needs["fastecdsa"].specifier) == "==2.3.2"
    assert f"libp2p=={metadata.version('libp2p')}" == installer().libp2p() == "libp2p==0.8.1"


def test_install__what_libp2p_needs__stands_in_our_requirements_and_the_pinned_release_suits_it() -> None:
    ours = normalised(map(installer().name_of, installer().requirements_of_sfnode([])))
    versions = {normalised([name]).pop(): version for name, _, version in (line.partition("==") for line in pins())}
    needs = {name: each for name, each in needs_of_libp2p().items() if name != "fastecdsa"}
    assert needs.keys() - ours == set()
    assert [name for name, each in needs.items() if not each.specifier.contains(versions[name])] == []


def test_install__node_without_training__asks_for_nothing_that_is_compiled() -> None:
    names = {installer().name_of(line) for line in installer().requirements_of_sfnode([])}
    assert {"trio", "pynacl"} <= names
    assert names & {"libp2p", "fastecdsa", "torch", "transformers", "safetensors", "tokenizers"} == set()


def test_install__modules_and_one_of_another_python__are_compiled_but_for_that(tmp_path: Path) -> None:
    """pip compiles on one processor, which took almost half of an installation: it leaves that to us."""
    for name, text in ("package/good.py", "x = 1\n"), ("package/old.py", "print 'a'\n"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    installer().compile_modules(tmp_path)
    found = [path.name for path in tmp_path.rglob("*.pyc")]
    assert found == [f"good.{sys.implementation.cache_tag}.pyc"]


def made_wheel(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as wheel:
        for name in ("libp2p/__init__.py", "libp2p-0.8.1.dist-info/METADATA", "docs/conf.py", "examples/chat.py"):
            wheel.writestr(name, "")
    return path


# In a process of its own: setuptools changes how Python imports things for all that comes after it.
BUILDING = """
import importlib.util, pathlib, sys
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

file, folder, is_editable = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3] == "True"
spec = importlib.util.spec_from_file_location("setup", file)
setup = importlib.util.module_from_spec(spec)
spec.loader.exec_module(setup)
setup.HERE = folder  # as in an archive of sources, which carries libp2p's wheel
build_py.run = lambda self: None
command = setup.BuildWithLibp2p(Distribution())
command.build_lib, command.editable_mode = str(folder / "lib"), is_editable
command.run()
"""


@pytest.mark.parametrize("is_editable", [False, True], ids=["wheel", "editable"])
def test_setup__built__has_libp2p_and_none_of_its_other_folders_inside_or_nothing_where_editable(
    is_editable: bool, tmp_path: Path
) -> None:
    (tmp_path / "bundled").mkdir()
    made_wheel(tmp_path / "bundled" / "libp2p-0.8.1-py3-none-any.whl")
    command = [sys.executable, "-c", BUILDING, str(REPOSITORY / "setup.py"), str(tmp_path), str(is_editable)]
    subprocess.run(command, check=True, timeout=60)
    names = sorted(path.name for path in (tmp_path / "lib" / "sfnode" / "bundled").glob("*"))
    assert names == ([] if is_editable else ["libp2p", "libp2p-0.8.1.dist-info"])


@pytest.mark.parametrize("is_there", [True, False], ids=["wheel", "checkout"])
def test_bundled_libp2p__there__comes_before_another_that_is_installed(
    is_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bundled"
    if is_there:
        folder.mkdir()
    monkeypatch.setattr(bundled_libp2p, "_FOLDER", folder)
    monkeypatch.setattr("sys.path", ["site-packages"])
    assert bundled_libp2p.prefer_bundled() is is_there
    assert sys.path == [str(folder)] * is_there + ["site-packages"]


@pytest.mark.parametrize(
    ("card", "answers", "build", "pip_arguments", "chosen"),
    [
        ("", True, "auto", [], ["--extra-index-url", "https://download.pytorch.org/whl/cpu"]),
        ("", False, "auto", [], []),
        ("H100", True, "auto", [], []),
        ("H100", True, "cpu", [], ["--extra-index-url", "https://download.pytorch.org/whl/cpu"]),
        ("", True, "cuda", [], []),
        ("", True, "auto", ["--extra-index-url=https://example.org"], []),
    ],
)
def test_install__build_of_pytorch__fits_the_card_unless_the_caller_chose(
    card: str, answers: bool, build: str, pip_arguments: list[str], chosen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    install = installer()
    monkeypatch.setattr(install.platform, "system", lambda: "Linux")
    monkeypatch.setattr(install, "card_of_this_machine", lambda: card)
    monkeypatch.setattr(install, "answers", lambda _address: answers)
    assert install.torch_index(build, pip_arguments) == chosen


@pytest.mark.parametrize(("build", "is_for_cpus"), [("cpu", True), ("cuda", False)])
def test_dockerfile__build_of_pytorch__is_the_one_asked_for_where_no_card_is_seen(
    build: str, is_for_cpus: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No build of an image sees the card: the image for CUDA got the PyTorch of processors."""
    step = re.search(
        r"^RUN (case .*?)(?= \\\n    && if )", (REPOSITORY / "deploy/Dockerfile").read_text("utf-8"), re.S | re.M
    )
    assert step is not None
    shell = step[1].replace("/opt/sfnode/bin/python deploy/install.py", "echo")
    variables = {"TORCH": build, "CPU_INDEX": "https://example.org/cpu", "PIP_ARGS": ""}
    arguments = subprocess.run(["sh", "-euc", shell], env=variables, capture_output=True, text=True, check=True).stdout
    install, run = installer(), list[str]()
    monkeypatch.setattr(install, "card_of_this_machine", lambda: "")
    monkeypatch.setattr(install, "answers", lambda _address: True)
    monkeypatch.setattr(install, "pip_install", lambda *words: run.extend(words))
    monkeypatch.setattr(install, "compile_modules", lambda *_folders: None)
    monkeypatch.setattr(sys, "argv", ["install.py", *arguments.split()])
    install.main()
    assert ("--extra-index-url" in run) is is_for_cpus


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("  Downloading numpy-2.4.6-cp311-cp311-linux.whl (16.1 MB)\n", "downloading numpy-2.4.6 (16.1 MB)"),
        ("Processing /opt/wheels/torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl\n", ""),
        ("  Downloading numpy-2.4.6-cp311-cp311-any.whl.metadata (6.0 kB)\n", ""),
        ("Installing collected packages: a, b, c, d\n", "installing 4 packages"),
        ("Requirement already satisfied: numpy in x\n", ""),
    ],
)  # fmt: skip
def test_install__line_of_pip__is_said_where_it_is_news(line: str, said: str) -> None:
    assert installer().news(line) == said


def test_install__unknown_extra__names_those_that_exist() -> None:
    with pytest.raises(SystemExit) as stopped:
        installer().requirements_of_sfnode(["tarin"])
    assert (
        str(stopped.value)
        == "install: no extra tarin in pyproject.toml; there are data, dev, privacy, quantised, train, web"
    )


# --- releases


def test_release__version__has_one_place_and_moves_with_the_changelog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]["dynamic"] == ["version"]
    release = script("deploy/release.py")
    for name in ("VERSION_FILE", "CHANGELOG"):
        monkeypatch.setattr(release, name, tmp_path / name)
    release.VERSION_FILE.write_text('"""Door."""\n\n__version__ = "0.1.0"\n')
    release.CHANGELOG.write_text("# Changelog\n\n## [Unreleased]\n\n### Added\n\n- news\n\n## [0.1.0] - 2026-01-01\n")
    release.move("0.2.0", "2026-12-01")
    assert release.current_version() == "0.2.0"
    changelog = release.CHANGELOG.read_text()
    assert "## [Unreleased]\n\n## [0.2.0] - 2026-12-01\n\n### Added\n\n- news\n" in changelog
    assert release.notes_of(changelog, "0.2.0") == "### Added\n\n- news\n"
    with pytest.raises(SystemExit, match=r"0\.2\.0' is not three numbers .* or CHANGELOG\.md has it already"):
        release.move("0.2.0", "2026-12-02")


def test_release__version_without_a_heading__has_what_is_unreleased_as_its_notes() -> None:
    release = script("deploy/release.py")
    assert release.notes_of("## [Unreleased]\n\n- news\n\n## [0.0.1]\n\n- old\n", "0.1.0") == "- news\n"


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{name}.md" for name in PAGES_THAT_INSTALL)])
def test_documents__wheel_in_a_command__has_a_name_that_pip_takes(page: str, tmp_path: Path) -> None:
    """They said `pipx install 'sfnode.whl[train,web]'`: pip refuses a file of that name.

    And pipx installs a file without the parts in brackets, unless its path has a slash.
    Of two files the newer is meant.
    """
    for age, version in enumerate(("0.10.0", "0.9.0")):
        wheel = tmp_path / f"sfnode-{version}-py3-none-any.whl"
        wheel.touch()
        os.utime(wheel, (1e9 - age, 1e9 - age))
    words = re.findall(r"""(?:"[^"\n]*|'[^'\n]*)\.whl[^"'\n]*["']""", (REPOSITORY / page).read_text("utf-8"))
    assert words
    for word in words:
        said = subprocess.run(
            ["sh", "-c", f"printf %s {word}"], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        name, extras = said.stdout.removesuffix("]").split("[")
        assert name.startswith("./")
        assert parse_wheel_filename(name[2:])[:2] == ("sfnode", Version("0.10.0")) and extras == "train,web"


def test_release__image_with_any_compiler__is_not_taken_for_one_without(tmp_path: Path) -> None:
    """`command -v gcc cc clang` looks for the first alone in the shell of Debian's images."""
    workflow = (REPOSITORY / ".github" / "workflows" / "release.yml").read_text("utf-8")
    step = workflow.partition("There is no compiler\n        run: ")[2].partition("\n")[0]
    for tools in ([], ["gcc"], ["cc"], ["clang"]):
        folder = tmp_path / "-".join(["bin", *tools])
        folder.mkdir()
        for tool in tools:
            (folder / tool).touch(mode=0o755)
        ended = subprocess.run(
            ["/bin/sh", "-e", "-c", step], env={"PATH": str(folder)}, capture_output=True, check=False
        )
        assert ended.returncode == len(tools)
