"""Puts a point at every await and at the beginning of every function of the modules that are searched.

It happens while they are imported, in their syntax trees, and nothing of the product changes: `await f(x)` becomes
`await point(number, f, x)`. What happens at a point decides `tests.faults.points`.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final

# Whose functions are points as well as their awaits: what is ours. Of libp2p, its awaits: what it may raise into ours.
OURS: Final = ("sfnode.network", "sfnode.node", "sfnode.worker", "sfnode.storage", "protocol.node", "protocol.sync")
LIBRARY: Final = ("libp2p",)
# Not searched: what answers for the search itself, or is a plain value whose fault is its caller's.
EXEMPT: Final = ("sfnode.unexpected_errors", "sfnode.node.daemon", "libp2p.crypto", "libp2p.peer.id", "libp2p.pubsub")
AWAIT, CALL, ENTRY = "__fault_await__", "__fault_call__", "__fault_entry__"


@dataclass(frozen=True, slots=True)
class Site:
    """One point: a stable name (`module:function:text#nth`), where it stands, and whether it may wait there."""

    name: str
    place: str
    is_await: bool

    @property
    def module(self) -> str:
        """The module that it stands in."""
        return self.name.partition(":")[0]


SITES: Final[list[Site]] = []


def install(at_await: Callable[..., object], at_call: Callable[..., object], at_entry: Callable[..., object]) -> None:
    """Search the modules that are imported from now on. None of them may have been imported before."""
    early = sorted(name for name in sys.modules if _is_searched(name))
    assert not early, f"imported too early: {early[:5]}"
    vars(builtins).update({AWAIT: at_await, CALL: at_call, ENTRY: at_entry})
    sys.meta_path.insert(0, _Finder())


def _is_searched(name: str) -> bool:
    return _is_in(name, OURS + LIBRARY) and not _is_in(name, EXEMPT)


def _is_in(name: str, packages: Sequence[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The usual module with our loader; None: it is not searched."""
        if not _is_searched(fullname):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(fullname, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        """Compiled anew from the source, never from a cache."""
        source = self.get_data(self.path).decode("utf-8")
        tree = ast.fix_missing_locations(_Points(fullname, self.path).visit(ast.parse(source, self.path)))
        code = compile(tree, self.path, "exec", dont_inherit=True)
        assert isinstance(code, CodeType)
        return code


class _Points(ast.NodeTransformer):
    def __init__(self, module: str, path: str) -> None:
        self._module, self._path = module, path
        self._functions: list[str] = []
        self._seen: dict[str, int] = {}
        self._has_entries = _is_in(module, OURS)

    def _new(self, node: ast.AST, text: str, *, is_await: bool) -> ast.Constant:
        name = f"{self._module}:{'.'.join(self._functions)}:{text}"
        self._seen[name] = nth = self._seen.get(name, 0) + 1
        place = f"{Path(self._path).name}:{getattr(node, 'lineno', 0)}"
        SITES.append(Site(f"{name}#{nth}", place, is_await))
        return ast.Constant(len(SITES) - 1)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Functions are named with their classes."""
        self._functions.append(node.name)
        self.generic_visit(node)
        self._functions.pop()
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """A point at the beginning, after the docstring; not in what runs while a module or class is made."""
        return self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        """As of any function."""
        return self._visit_function(node)

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        self._functions.append(node.name)
        self.generic_visit(node)
        if self._has_entries and not node.name.startswith("__"):
            call = ast.Call(ast.Name(ENTRY, ast.Load()), [self._new(node, "enter", is_await=False)], [])
            has_docstring = ast.get_docstring(node) is not None
            node.body.insert(int(has_docstring), ast.copy_location(ast.Expr(call), node.body[0]))
        self._functions.pop()
        return node

    def visit_Await(self, node: ast.Await) -> ast.AST:
        """A call is made inside the point, so that what it is given can be changed; other awaitables go in whole."""
        text = ast.unparse(node.value)[:60]
        self.generic_visit(node)
        number = self._new(node, text, is_await=True)
        value = node.value
        if isinstance(value, ast.Call):
            call = ast.Call(ast.Name(CALL, ast.Load()), [number, value.func, *value.args], value.keywords)
        else:
            call = ast.Call(ast.Name(AWAIT, ast.Load()), [number, value], [])
        node.value = ast.copy_location(call, value)
        return node
