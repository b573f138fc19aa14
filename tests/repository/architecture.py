"""The source tree as the architecture sees it: parsed modules, what they import, and the rules that concern all of
them together (layers, cycles). Rules for one module at a time: `architecture_rules.py`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
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
    "sfnode.cli": TORCH,  # only inside functions: `sfnode status` must not wait for torch
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One parsed source file. `name` is dotted (`protocol.wire`), `path` is for the report."""

    name: str
    path: str
    tree: ast.Module
    lines: int

    def is_in(self, *packages: str) -> bool:
        return any(self.name == package or self.name.startswith(package + ".") for package in packages)

    def at(self, node: ast.AST, text: str) -> str:
        return f"{self.path}:{getattr(node, 'lineno', 1)}: {text}"


def parse(source: str, name: str, path: str) -> Module:
    return Module(name=name, path=path, tree=ast.parse(source), lines=source.count("\n"))


def read_modules(*folders: str) -> tuple[Module, ...]:
    """Every module under the folders of the repository, ordered by path."""
    files = sorted(path for folder in folders for path in (REPOSITORY / folder).rglob("*.py"))
    return tuple(_read(path) for path in files)


def _read(path: Path) -> Module:
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return parse(path.read_text("utf-8"), name, str(path.relative_to(REPOSITORY)))


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
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def own_nodes(parent: ast.AST) -> Iterator[ast.AST]:
    """All nodes below, but not those inside nested functions."""
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        yield node
        yield from own_nodes(node)


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and dotted(node.test).endswith("TYPE_CHECKING")


def eager_imports(parent: ast.AST) -> Iterator[str]:
    """Names imported when the module is, so neither inside functions nor for the type checker alone."""
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or is_type_checking(node):
            continue
        yield from imported_names(node)
        yield from eager_imports(node)


# --- rules for all modules together


def import_graph(modules: tuple[Module, ...]) -> dict[str, frozenset[str]]:
    """What each module imports when it is imported: modules of ours by full name, others by their first part."""
    known = {module.name for module in modules}
    return {module.name: frozenset(_target(name, known) for name in eager_imports(module.tree)) for module in modules}


def _target(name: str, known: set[str]) -> str:
    """`protocol.ledger.ledger.Ledger` is asked of the module `protocol.ledger.ledger`; `torch.nn` counts as `torch`."""
    longest = name
    while longest not in known and "." in longest:
        longest = longest.rpartition(".")[0]
    return longest


def broken_layers(modules: tuple[Module, ...]) -> Iterator[str]:
    """What a layer must not reach, reached directly or through others; the whole way there is told."""
    graph = import_graph(modules)
    for module in modules:
        for layer, forbidden in LAYERS.items():
            if module.is_in(layer) and (way := _way_to(graph, module.name, _is_under(forbidden))):
                yield f"{module.path}:1: {layer} must not reach {way[-1]}: {' -> '.join(way)}"


def _is_under(names: frozenset[str]) -> Callable[[str], bool]:
    return lambda target: any(target == name or target.startswith(name + ".") for name in names)


def _way_to(graph: dict[str, frozenset[str]], start: str, is_wanted: Callable[[str], bool]) -> tuple[str, ...]:
    """The shortest chain of imports from start to something wanted, or ()."""
    ways: list[tuple[str, ...]] = [(start,)]
    seen: set[str] = set()
    for way in ways:  # grows while it is walked: breadth first
        for target in sorted(graph.get(way[-1], frozenset()) - seen):
            if is_wanted(target):
                return (*way, target)
            seen.add(target)
            ways.append((*way, target))
    return ()


def import_cycles(modules: tuple[Module, ...]) -> Iterator[str]:
    """A module that leads back to itself, with the way round."""
    graph = import_graph(modules)
    for module in modules:
        if way := _way_to(graph, module.name, module.name.__eq__):
            yield f"{module.path}:1: import cycle {' -> '.join(way)}"
