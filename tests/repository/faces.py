"""The rules of the faces: each package's `__init__.py` names its door and imports what others may use, and others
import no deeper. A face may hand out a whole module, so that its functions are called by their full names
(`control_files.pause()`). Functions from all modules to their offenders, like those of `architecture.py`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.repository.architecture import OURS, Module, dotted, imported_names, is_type_checking, target

# Packages without a face of their own: the rooms in them are doors. Each is a reason why one face would not do.
STREETS = {
    "sfnode.training": "a face would import torch and transformers, seconds of it, for all who want one room",
    "sfnode.api": "a face would import torch and trio for all who want neither; `sfnode` hands out its names lazily",
    "sfnode.children": "a face would import trio, which the processes that train, and start others, must not",
}
GUESTS = ("protocol", "sfnode", "benchmarks")  # tests/ look into every room


def deep_imports(modules: tuple[Module, ...]) -> Iterator[str]:
    """An import from outside a package names the package: its face, or a loose module beside the importer's own rooms.

    Of the packages that the importer and the imported module share, the deepest is where they meet (the top package,
    where they share none). One step down from there is a door; what lies deeper is private to the room behind it.
    """
    known = {module.name for module in modules}
    handed_out = {f"{module.name}.{name}" for module in modules for name in listed_names(module)}
    for module in modules:
        for node, name in _imports_of_ours(module):
            asked = target(name, known)
            door = _door(module, asked)
            if asked != door and not (name == asked and name in handed_out):
                yield module.at(node, f"imports {asked}, which lies behind the face {door}")


def unlisted_names(modules: tuple[Module, ...]) -> Iterator[str]:
    """What is imported from a face is a module of the package, or a name that the face hands out."""
    known = {module.name for module in modules}
    listed = {module.name: frozenset(listed_names(module)) for module in modules if module.is_package}
    for module in modules:
        for node, name in _imports_of_ours(module):
            face, _, asked = name.rpartition(".")
            if face in listed and name not in known and asked not in listed[face]:
                yield module.at(node, f"imports {asked} from {face}, which does not hand it out")


def nameless_doors(modules: tuple[Module, ...]) -> Iterator[str]:
    """The first sentence in each `__init__.py` names its door: something that it hands out or a package in it; where
    it has neither, as a package of commands, one of its modules."""
    for module in modules:
        if module.is_package and module.is_in(*OURS):
            doors = {*listed_names(module), *_inside(module, modules, is_package=True)}
            doors = doors or {*_inside(module, modules, is_package=False)}
            if not doors & set(re.findall(r"\w+", _first_sentence(module))):
                yield f"{module.path}:1: the first sentence names no door, such as {' '.join(sorted(doors))}"


def hidden_names(modules: tuple[Module, ...]) -> Iterator[str]:
    """What a face hands out is not called as a module of its package: once imported, that takes the name's place."""
    for module in modules:
        inside = {*_inside(module, modules, is_package=False), *_inside(module, modules, is_package=True)}
        imports = [node for node in module.nodes if module.is_package and isinstance(node, ast.ImportFrom)]
        names = [
            (node, each.asname or each.name) for node in imports if node.module != module.name for each in node.names
        ]
        yield from (
            module.at(node, f"hands out {name}, which a module of the package is called, too")
            for node, name in names
            if name in inside
        )


def _imports_of_ours(module: Module) -> Iterator[tuple[ast.AST, str]]:
    """The names that a guest imports from packages that have faces, with their places."""
    if not module.is_in(*GUESTS):
        return
    for node in module.nodes:
        for name in imported_names(node):
            if name.partition(".")[0] in OURS:
                yield node, name


def _door(module: Module, asked: str) -> str:
    """As much of the name of the module asked for as this module may know of."""
    own, parts = module.package.split("."), asked.split(".")
    shared = 0
    while shared < min(len(own), len(parts)) and own[shared] == parts[shared]:
        shared += 1
    door = parts[: max(shared, 1) + 1]
    is_on_a_street = ".".join(door) in STREETS
    return ".".join(parts[: len(door) + is_on_a_street])


def listed_names(module: Module) -> Iterator[str]:
    """The names that a face hands out: those of its `__all__` or, where it has none, what it imports from its rooms."""
    body = module.tree.body
    lists = [node.value for node in body if isinstance(node, ast.Assign) and _assigns(node, "__all__")]
    if lists:
        yield from (name for each in lists for name in ast.literal_eval(each))
    elif module.is_package:
        late = [each for block in body if is_type_checking(block) for each in ast.iter_child_nodes(block)]
        for node in (*body, *late):
            if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"{module.name}."):
                yield from (each.asname or each.name for each in node.names)


def borrowed_names(modules: tuple[Module, ...]) -> Iterator[str]:
    """What is imported from a module that is no face is made there, and not only imported there."""
    borrowed = {
        f"{module.name}.{name}"
        for module in modules
        if module.is_in(*OURS) and not module.is_package
        for node in module.tree.body
        if isinstance(node, ast.ImportFrom)
        for name in (each.asname or each.name for each in node.names)
    }
    for module in modules:
        for node, name in _imports_of_ours(module):
            if name in borrowed:
                yield module.at(node, f"imports {name}, which is made elsewhere")


def _assigns(node: ast.Assign, name: str) -> bool:
    return [dotted(each) for each in node.targets] == [name]


def _inside(package: Module, modules: tuple[Module, ...], *, is_package: bool) -> Iterator[str]:
    """The names of the packages, or of the modules, directly in a package."""
    for module in modules:
        above, _, name = module.name.rpartition(".")
        if above == package.name and module.is_package == is_package:
            yield name


def _first_sentence(module: Module) -> str:
    return re.split(r"(?<=[.!?])\s|\n\n", ast.get_docstring(module.tree) or "", maxsplit=1)[0]
