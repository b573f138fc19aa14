"""Which tests stand on what has changed: from changed paths to test files, the closest first. Pure; the command is
`quick.py`."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatch
from pathlib import PurePosixPath

from tests.repository.architecture import Graph, Module, every_import, target, use_graph
from tests.repository.faces import listed_names

# They read the source tree or a text instead of importing it, and do not name it as `_names_of` expects. Pattern of a
# changed path -> test files; `*` crosses `/`.
READERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("sfnode/*.py", ("tests/repository/test_inside_rooms.py",)),
    ("protocol/*.py", ("tests/repository/test_inside_rooms.py",)),
    ("*.py", ("tests/repository/test_architecture.py", "tests/repository/test_structure.py")),
    ("*.md", ("tests/repository/test_documents.py", "tests/repository/test_spec.py")),
    ("mkdocs.yml", ("tests/repository/test_documents_site.py",)),
    ("Makefile", ("tests/repository/test_documents.py", "tests/repository/test_install.py")),
    ("pyproject.toml", ("tests/repository/test_architecture.py", "tests/repository/test_install.py")),
    ("constraints.txt", ("tests/repository/test_install.py",)),
    ("deploy/*", tuple(f"tests/repository/test_{name}.py" for name in ("check_system", "deploy", "install"))),
    ("protocol/vectors/*", ("tests/conformance/test_vectors.py", "tests/conformance/test_reader.py")),
    (
        "protocol/conformance/*",
        ("tests/conformance/test_reader.py", "tests/conformance/test_switches.py"),
    ),
    ("docs/examples/*", ("tests/api/test_examples.py",)),
    ("sfnode/__init__.pyi", ("tests/api/test_names.py",)),
    ("sfnode/demo/*", tuple(f"tests/demo/test_demo_{name}.py" for name in ("data", "model", "training"))),
    ("tests/fuzz/corpus/*", ("tests/fuzz/test_corpus.py",)),
    ("tests/interop/*", ("tests/interop/test_interop.py",)),
)

# Module -> the package of which it names modules in a word, to import them when they are asked for.
LAZY = {"sfnode.cli": "sfnode.cli", "tests.fuzz.catalogue": "tests.fuzz"}


def affected_tests(changed: Collection[str], modules: tuple[Module, ...]) -> list[str]:
    """Return the test files that use a changed module, however indirectly, or read a changed file: first those about
    it alone, then those that read it, those in the folder that mirrors its own, and those fewer imports away."""
    paths = {module.name: module.path for module in modules}
    users: dict[str, set[str]] = {}
    for user, used in stands_on(modules).items():
        for name in used:
            users.setdefault(name, set()).add(user)
    names = _names_of(set(changed) - set(paths.values()))
    start = (each.name for each in modules if each.path in changed or not names.isdisjoint(_texts(each)))
    steps = dict.fromkeys(start, 0)
    waiting = list(steps)
    for name in waiting:  # grows while it is walked: breadth first
        for reached in sorted(users.get(name, set()) - steps.keys()):
            steps[reached] = steps[name] + 1
            waiting.append(reached)
    found = {paths[name]: far for name, far in steps.items() if is_test_file(paths[name])}
    found |= dict.fromkeys(_readers(changed, set(paths.values())), 0)
    mirrors = {_mirror(path) for path in changed}
    return sorted(found, key=lambda path: (_farness(path, mirrors, found[path]), found[path], path))


def is_test_file(path: str) -> bool:
    return path.startswith("tests/") and PurePosixPath(path).name.startswith("test_")


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
    if module.name in LAZY:
        yield from {f"{LAZY[module.name]}.{text}" for text in _texts(module)} & known.keys()
    elif not module.is_package:  # what `sfnode` hands out lazily it passes on, like any face
        yield from (text for text in _texts(module) if "." in text and text in known)


def _texts(module: Module) -> Iterator[str]:
    return (node.value for node in module.nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


def _packages(module: Module, known: Mapping[str, Module]) -> Iterator[str]:
    above = module.name
    while above:
        above = above.rpartition(".")[0]
        for name in (above, f"{above}.conftest"):
            if name in known:
                yield name


# --- folders and files


def _readers(changed: Iterable[str], existing: Collection[str]) -> Iterator[str]:
    for path in changed:
        for pattern, readers in READERS:
            if fnmatch(path, pattern):
                yield from (reader for reader in readers if reader in existing)


def _names_of(paths: Iterable[str]) -> set[str]:
    """How a test or a module may name a file that it reads: its path, or the end of it, such as `static/page.js`."""
    parts = [path.split("/") for path in paths]
    alike = {path.rpartition("/")[2] for path in paths if fnmatch(path, "sfnode/demo/*/*")}  # tests make such files
    ends = ("/".join(each[start:]) for each in parts for start in range(len(each)))
    return {end for end in ends if "." in end or "/" in end} - alike  # `run` is also a word


def _mirror(path: str) -> tuple[str, str]:
    """The folder of tests/ that mirrors a file's, and the name of the test file that is about it alone."""
    parts = PurePosixPath(path).parts
    if parts[0] in ("sfnode", "tests") and len(parts) > 2:
        folder = f"tests/{parts[1]}"
    else:
        folder = f"tests/{parts[0]}"
    return folder, f"test_{PurePosixPath(path).stem.removeprefix('test_')}.py"


def _farness(path: str, mirrors: Collection[tuple[str, str]], imports: int) -> int:
    """0 for the tests of a changed file itself, 1 for those that read it or are of its folder, 2 for others."""
    folder, _, name = path.rpartition("/")
    if (folder, name) in mirrors:
        return 0
    return 1 if imports == 0 or any(folder == mirrored for mirrored, _ in mirrors) else 2
