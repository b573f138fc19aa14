"""Which tests stand on what has changed: from changed paths to test files, the closest first. Pure; the command is
`quick.py`."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import PurePosixPath

from tests.repository.architecture import Graph, Module, dotted, every_import, target, use_graph
from tests.repository.faces import listed_names

MARK = "mark.process"
UNKNOWN_S = 3.0  # a test file that was not there when the durations were stored
# They read the source tree or a text instead of importing it. Pattern of a changed path -> test files; `*` crosses `/`.
READERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("*.py", ("tests/repository/test_architecture.py", "tests/repository/test_structure.py")),
    ("*.md", ("tests/repository/test_documents.py", "tests/repository/test_spec.py")),
    ("Makefile", ("tests/repository/test_documents.py", "tests/repository/test_install.py")),
    ("pyproject.toml", ("tests/repository/test_architecture.py", "tests/repository/test_install.py")),
    ("constraints.txt", ("tests/repository/test_install.py",)),
    ("deploy/*", tuple(f"tests/repository/test_{name}.py" for name in ("check_system", "deploy", "install"))),
    ("protocol/vectors/*", ("tests/conformance/test_vectors.py", "tests/conformance/test_reader.py")),
    (
        "protocol/conformance/*",
        ("tests/conformance/test_reader.py", "tests/conformance/test_switches.py"),
    ),
    ("sfnode/demo/*", tuple(f"tests/demo/test_demo_{name}.py" for name in ("data", "model", "training"))),
    ("tests/fuzz/corpus/*", ("tests/fuzz/test_corpus.py",)),
    ("tests/interop/*", ("tests/interop/test_interop.py",)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Test files in the order in which they are to run, and those that the time does not suffice for."""

    taken: tuple[str, ...]
    left: tuple[str, ...]
    seconds_taken: float  # as recorded, of all processes together
    seconds_left: float


def within(paths: Iterable[str], seconds: Mapping[str, float], budget_s: float) -> Selection:
    """The first of these test files, as many as the budget suffices for; shorter ones that follow may fill it up."""
    taken: list[str] = []
    left: list[str] = []
    total_s = left_s = 0.0
    for path in paths:
        needed_s = seconds.get(path, UNKNOWN_S)
        if total_s + needed_s <= budget_s or not taken:
            taken.append(path)
            total_s += needed_s
        else:
            left.append(path)
            left_s += needed_s
    return Selection(taken=tuple(taken), left=tuple(left), seconds_taken=total_s, seconds_left=left_s)


def affected_tests(changed: Collection[str], modules: tuple[Module, ...], seconds: Mapping[str, float]) -> list[str]:
    """Test files that use a changed module, however indirectly, or read a changed file: first those in the folder that
    mirrors the change's, then those that are fewer imports away, then the shorter ones."""
    paths = {module.name: module.path for module in modules}
    start = [module.name for module in modules if module.path in changed]
    distances = _distances(_users(stands_on(modules)), start)
    found = {paths[name]: steps for name, steps in distances.items() if is_test_file(paths[name])}
    found |= dict.fromkeys(_readers(changed, set(paths.values())), 1)
    mirrors = {_mirror(path) for path in changed}
    return sorted(found, key=lambda path: (_farness(path, mirrors), found[path], seconds.get(path, UNKNOWN_S), path))


def is_test_file(path: str) -> bool:
    return path.startswith("tests/") and PurePosixPath(path).name.startswith("test_")


def is_process_test(module: Module) -> bool:
    """Whether tests in this file are marked `process`."""
    return any(
        dotted(node).endswith("mark.process") for node in ast.walk(module.tree) if isinstance(node, ast.Attribute)
    )


# --- the graph


def stands_on(modules: tuple[Module, ...]) -> Graph:
    """What each module may be broken by: the modules that it imports or names in a string (`-m`, `pytest_plugins`,
    mutants), the faces on the way to them, and the packages it lies in. A face does not stand on what it passes on:
    an importer of a name stands on the module behind that name, and not on all of the package."""
    known = {module.name: module for module in modules}
    uses = use_graph(modules)
    return {
        name: frozenset({*_own_uses(module, uses, known), *_named(module, known), *_packages(module, known)}) - {name}
        for name, module in known.items()
    }


def _own_uses(module: Module, uses: Graph, known: Mapping[str, Module]) -> Iterator[str]:
    if not module.is_package:
        yield from uses[module.name]
    passed_on = frozenset(listed_names(module))
    for name in every_import(module.tree):
        if name.rpartition(".")[2] not in passed_on and (found := target(name, known)) in known:
            yield found


def _named(module: Module, known: Mapping[str, Module]) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value and node.value in known:
            yield node.value


def _packages(module: Module, known: Mapping[str, Module]) -> Iterator[str]:
    above = module.name
    while above:
        above = above.rpartition(".")[0]
        for name in (above, f"{above}.conftest"):
            if name in known:
                yield name


def _users(graph: Graph) -> dict[str, set[str]]:
    users: dict[str, set[str]] = {}
    for user, used in graph.items():
        for name in used:
            users.setdefault(name, set()).add(user)
    return users


def _distances(graph: Mapping[str, Collection[str]], start: Iterable[str]) -> dict[str, int]:
    """How many steps each node is away from the closest of these."""
    distances = dict.fromkeys(start, 0)
    waiting = list(distances)
    for name in waiting:  # grows while it is walked: breadth first
        for reached in sorted(set(graph.get(name, ())) - distances.keys()):
            distances[reached] = distances[name] + 1
            waiting.append(reached)
    return distances


# --- folders and files


def _readers(changed: Iterable[str], existing: Collection[str]) -> Iterator[str]:
    for path in changed:
        for pattern, readers in READERS:
            if fnmatch(path, pattern):
                yield from (reader for reader in readers if reader in existing)


def _mirror(path: str) -> tuple[str, str]:
    """The folder of tests/ that mirrors a file's, and the name of the test file that is about it alone."""
    parts = PurePosixPath(path).parts
    if parts[0] in ("sfnode", "tests") and len(parts) > 2:
        folder = f"tests/{parts[1]}"
    else:
        folder = f"tests/{parts[0]}"
    return folder, f"test_{PurePosixPath(path).stem.removeprefix('test_')}.py"


def _farness(path: str, mirrors: Collection[tuple[str, str]]) -> int:
    """0 for the tests of a changed file itself, 1 for those of its folder, 2 for others."""
    folder, _, name = path.rpartition("/")
    if (folder, name) in mirrors:
        return 0
    return 1 if any(folder == mirrored for mirrored, _ in mirrors) else 2
