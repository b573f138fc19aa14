"""The source tree as the architecture sees it: parsed modules, what they import, and the rules that concern all of
them together (layers, cycles). Rules for one module at a time: `architecture_rules.py`."""

from __future__ import annotations

import ast
import functools
import gc
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests import REPOSITORY

OURS = ("protocol", "sfnode")

TORCH = frozenset({"torch", "transformers", "safetensors", "tokenizers", "peft", "accelerate"})
NETWORK = frozenset({"trio", "libp2p", "multiaddr", "anyio", "asyncio"})
# Package -> what it must not reach, directly or through other modules of ours.
LAYERS = {
    "protocol": TORCH | NETWORK | {"sfnode"},
    "sfnode.network": TORCH | {"sfnode.training", "sfnode.cli"},
    "sfnode.training": NETWORK | {"sfnode.network", "sfnode.cli"},
    # Only inside functions: `sfnode status` must not wait for torch, and runs without the extra `web`.
    "sfnode.cli": TORCH | {"hypercorn", "starlette"},
}


@dataclass(frozen=True, kw_only=True)
class Module:
    """One parsed source file. `name` is dotted (`protocol.wire`), `path` is for the report."""

    name: str
    path: str
    tree: ast.Module
    lines: int

    @functools.cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the tree but the marks of reading and writing, a third of all: each rule looks at them."""
        return tuple(node for node in ast.walk(self.tree) if not isinstance(node, ast.expr_context))

    def is_in(self, *packages: str) -> bool:
        return any(self.name == package or self.name.startswith(package + ".") for package in packages)

    @property
    def is_package(self) -> bool:
        """Whether this is the `__init__.py` of a folder, which is the folder's face."""
        return self.path.endswith("__init__.py")

    @property
    def package(self) -> str:
        """The package that the module lies in; a package lies in itself."""
        return self.name if self.is_package else self.name.rpartition(".")[0]

    def at(self, node: ast.AST, text: str) -> str:
        return f"{self.path}:{getattr(node, 'lineno', 1)}: {text}"


def parse(source: str, name: str, path: str) -> Module:
    return Module(name=name, path=path, tree=ast.parse(source), lines=source.count("\n"))


@functools.cache
def read_modules(*folders: str, root: Path = REPOSITORY) -> tuple[Module, ...]:
    """Every module under the folders of the repository (or of another root), ordered by path. They are read once."""
    files = sorted(path for folder in folders for path in (root / folder).rglob("*.py"))
    gc.disable()  # two million nodes that live as long as the process: the collector need not walk them at each turn
    modules = tuple(_read(path, root) for path in files)
    gc.freeze()
    gc.enable()
    return modules


@functools.cache
def _read(path: Path, root: Path) -> Module:
    return parse_file(path.read_text("utf-8"), path.relative_to(root))


def parse_file(source: str, path: Path) -> Module:
    """A source file that lies, or might lie, at this place in the tree."""
    parts = path.with_suffix("").parts
    return parse(source, ".".join(parts[:-1] if parts[-1] == "__init__" else parts), str(path))


# --- reading the tree


def dotted(node: ast.AST) -> str:
    """`np.random.rand` for that expression, "" for anything that is not a plain chain of names."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (head := dotted(node.value)):
        return f"{head}.{node.attr}"
    return ""


def imported_names(node: ast.AST) -> tuple[str, ...]:
    """Absolute names that an import statement asks for; `from a import b` asks for `a.b` (b may be a module)."""
    if isinstance(node, ast.Import):
        return tuple(alias.name for alias in node.names)
    if isinstance(node, ast.ImportFrom) and node.module:
        return tuple(f"{node.module}.{alias.name}" for alias in node.names)
    return ()


def functions(module: Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@functools.cache
def own_nodes(parent: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes below, but not those inside nested functions. Several rules look at them."""
    found = [parent]
    for node in found:  # grows while it is walked
        children = ast.iter_child_nodes(node)
        found += (
            each for each in children if not isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        )
    return tuple(found[1:])


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and dotted(node.test).endswith("TYPE_CHECKING")


def eager_imports(parent: ast.AST) -> Iterator[str]:
    """Names imported when the module is, so neither inside functions nor for the type checker alone."""
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or is_type_checking(node):
            continue
        yield from imported_names(node)
        yield from eager_imports(node)


# --- graphs


Graph = dict[str, frozenset[str]]


def import_graph(modules: tuple[Module, ...]) -> Graph:
    """What each module imports when it is imported: modules of ours by full name, others by their first part. What is
    asked of a lazy face (`sfnode.lazy_faces`) is imported from the module that the face takes it from."""
    known = {module.name for module in modules}
    eager = {module.name: tuple(eager_imports(module.tree)) for module in modules}
    faces = (module for module in modules if module.is_package)
    late = {name: source for face in faces for name, source in _passed_on(face) if source not in eager[face.name]}
    return {user: frozenset(target(_source(name, late), known) for name in names) for user, names in eager.items()}


def target(name: str, known: Collection[str]) -> str:
    """`protocol.ledger.ledger.Ledger` is asked of the module `protocol.ledger.ledger`; `torch.nn` counts as `torch`."""
    longest = name
    while longest not in known and "." in longest:
        longest = longest.rpartition(".")[0]
    return longest


def use_graph(modules: tuple[Module, ...]) -> Graph:
    """Which modules of ours each one uses, inside its functions too. What is asked of a package's face is used of the
    module that the face takes it from."""
    known = {module.name for module in modules}
    passed_on = {name: source for module in modules if module.is_package for name, source in _passed_on(module)}
    used = {module.name: {_source(name, passed_on) for name in every_import(module.tree)} for module in modules}
    return {
        user: frozenset(found for name in names if (found := target(name, known)) in known) - {user}
        for user, names in used.items()
    }


@functools.cache
def every_import(tree: ast.AST) -> tuple[str, ...]:
    """Names imported at any time, for the type checker too."""
    return tuple(name for node in ast.walk(tree) for name in imported_names(node))


def _passed_on(face: Module) -> Iterator[tuple[str, str]]:
    """(`protocol.ledger.Ledger`, `protocol.ledger.ledger.Ledger`) for what a face imports to be imported from it."""
    for node in face.nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield f"{face.name}.{alias.asname or alias.name}", f"{node.module}.{alias.name}"


def _source(name: str, passed_on: dict[str, str]) -> str:
    """Where a name comes from, through one face after another."""
    seen = {name}
    while name in passed_on and passed_on[name] not in seen:
        name = passed_on[name]
        seen.add(name)
    return name


# --- rules for all modules together


TreeRule = Callable[[tuple[Module, ...]], Iterator[str]]


def broken_layers(modules: tuple[Module, ...]) -> Iterator[str]:
    """What a layer must not reach, reached directly or through others; the whole way there is told."""
    graph = import_graph(modules)
    for module in modules:
        for layer, forbidden in LAYERS.items():
            if module.is_in(layer) and (way := _way_to(graph, module.name, _is_under(forbidden))):
                yield f"{module.path}:1: {layer} must not reach {way[-1]}: {' -> '.join(way)}"


def _is_under(names: frozenset[str]) -> Callable[[str], bool]:
    return lambda reached: any(reached == name or reached.startswith(name + ".") for name in names)


def _way_to(graph: Graph, start: str, is_wanted: Callable[[str], bool]) -> tuple[str, ...]:
    """The shortest chain of imports from start to something wanted, or ()."""
    ways: list[tuple[str, ...]] = [(start,)]
    seen: set[str] = set()
    for way in ways:  # grows while it is walked: breadth first
        for reached in sorted(graph.get(way[-1], frozenset()) - seen):
            if is_wanted(reached):
                return (*way, reached)
            seen.add(reached)
            ways.append((*way, reached))
    return ()


def import_cycles(modules: tuple[Module, ...]) -> Iterator[str]:
    """A module that leads back to itself, with the way round."""
    graph = import_graph(modules)
    for module in modules:
        if way := _way_to(graph, module.name, module.name.__eq__):
            yield f"{module.path}:1: import cycle {' -> '.join(way)}"
