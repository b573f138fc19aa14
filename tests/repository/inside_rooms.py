"""What is inside the rooms, in figures: python -m tests.repository.inside_rooms [--json] [--root FOLDER]

How much code there is, how finely it is cut, what its faces list, and how it speaks. `structure.py` measures what lies
between the rooms. `test_inside_rooms.py` holds these figures from getting worse."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import click

from tests import REPOSITORY
from tests.repository.architecture import OURS, Module, dotted, functions, read_modules
from tests.repository.faces import listed_names

HELPER_LINES_MAX: Final = 3
# Words of ours that a native engineer would not use here: this is the list.
DIALECT: Final = re.compile(
    r"\b(told|tells?|telling|whoever|whatever|lately|beside|so many|meanwhile|alike|as read|what is said)\b",
    re.IGNORECASE,
)
# Names of a path to a data directory; in the room that owns it, "folder" is another.
_DATA_DIRECTORY: Final = frozenset({"data_dir", "data_dirs", "data_directory", "directory", "directories"})
_STORAGE: Final = "sfnode.storage"
_COMMAND_DECORATORS: Final = ("command", "group")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """What was measured in protocol/ and sfnode/. Lists name what a figure counts; kloc: a thousand lines."""

    lines: int
    exported_names: int
    init_lines: int
    import_share: float  # of all lines, in percent
    small_helpers_per_kloc: float  # private, called from one place, three lines or fewer in their bodies
    dataclasses_per_kloc: float
    dialect_lines_per_kloc: float
    data_directory_functions: tuple[str, ...]  # that take a data directory as a path, not as a `DataDirectory`
    names_with_two_meanings: dict[str, tuple[str, ...]]  # public functions of modules, by where they are
    commands_elsewhere: tuple[str, ...]  # not in the file of their name
    longest_class: str
    longest_class_lines: int


def measure(root: Path = REPOSITORY) -> Inside:
    """Return all figures of a tree."""
    modules = read_modules(*OURS, root=root)
    lines = sum(module.lines for module in modules)
    inits = [module for module in modules if module.is_package]
    classes = [(module, node) for module in modules for node in module.nodes if isinstance(node, ast.ClassDef)]
    longest_module, longest = max(classes, key=lambda found: _lines(found[1]))
    spoken = sum(len(DIALECT.findall(line)) > 0 for module in modules for line in _text(module, root))

    def per_kloc(count: int) -> float:
        return round(1_000 * count / lines, 2)

    return Inside(
        lines=lines,
        exported_names=sum(len(set(listed_names(module))) for module in inits),
        init_lines=sum(module.lines for module in inits),
        import_share=round(100 * sum(map(_import_lines, modules)) / lines, 2),
        small_helpers_per_kloc=per_kloc(sum(len(list(small_helpers(module))) for module in modules)),
        dataclasses_per_kloc=per_kloc(sum(_is_dataclass(node) for _, node in classes)),
        dialect_lines_per_kloc=per_kloc(spoken),
        data_directory_functions=tuple(line for module in modules for line in _given_a_directory(module)),
        names_with_two_meanings=_names_with_two_meanings(modules),
        commands_elsewhere=tuple(line for module in modules for line in _commands_elsewhere(module)),
        longest_class=f"{longest_module.path}:{longest.name}",
        longest_class_lines=_lines(longest),
    )


def _text(module: Module, root: Path) -> list[str]:
    return (root / module.path).read_text("utf-8").splitlines()


def _lines(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Import | ast.ImportFrom) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _import_lines(module: Module) -> int:
    return sum(_lines(node) for node in module.nodes if isinstance(node, ast.Import | ast.ImportFrom))


def small_helpers(module: Module) -> Iterator[str]:
    """Private functions and methods of a few lines that one other place in their module names, and none twice."""
    named = Counter(
        node.id if isinstance(node, ast.Name) else node.attr
        for node in module.nodes
        if isinstance(node, ast.Name | ast.Attribute)
    )
    for function in functions(module):
        body = function.body[1:] if ast.get_docstring(function) is not None else function.body
        lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
        is_private = function.name.startswith("_") and not function.name.startswith("__")
        if is_private and not function.decorator_list and named[function.name] == 1 and lines <= HELPER_LINES_MAX:
            yield module.at(function, function.name)


def _is_dataclass(node: ast.ClassDef) -> bool:
    decorators = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
    return any(dotted(each).rpartition(".")[2] == "dataclass" for each in decorators)


def _given_a_directory(module: Module) -> Iterator[str]:
    names = _DATA_DIRECTORY | {"folder"} if module.name.startswith(_STORAGE) else _DATA_DIRECTORY
    for function in functions(module):
        given = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        paths = {each.arg for each in given if each.annotation and "DataDirectory" not in ast.unparse(each.annotation)}
        if names & paths:
            yield module.at(function, function.name)


def _names_with_two_meanings(modules: tuple[Module, ...]) -> dict[str, tuple[str, ...]]:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for module in modules:
        for node in module.tree.body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or _is_command(node):
                continue
            if not node.name.startswith("_") and node.name != "main":
                places[node.name].append(module.path)
    return {name: tuple(found) for name, found in sorted(places.items()) if len(found) > 1}


def _is_command(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(
        isinstance(each, ast.Call) and dotted(each.func).rpartition(".")[2] in _COMMAND_DECORATORS
        for each in node.decorator_list
    )


def _commands_elsewhere(module: Module) -> Iterator[str]:
    """Files with commands of which none, nor the group that holds them, has the name of the file."""
    commands = [node for node in functions(module) if _is_command(node) and not node.name.startswith("_")]
    names = {name for node in commands for name in _names_of(node)}
    if commands and module.name.rpartition(".")[2] not in names:
        yield f"{module.path}: {', '.join(sorted(names))}"


def _names_of(command: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """What a command is called: as its decorator says, or as its function."""
    for each in command.decorator_list:
        if isinstance(each, ast.Call) and dotted(each.func).rpartition(".")[2] in _COMMAND_DECORATORS:
            named = [arg.value for arg in each.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            yield (named[0] if named else command.name).replace("-", "_")


@click.command()
@click.option("--json", "is_json", is_flag=True, help="Everything that was found, for programs.")
@click.option("--root", type=click.Path(path_type=Path), default=REPOSITORY, help="Another checkout.")
def main(is_json: bool, root: Path) -> None:
    """Measure a tree, and print a line for each figure."""
    found = asdict(measure(root))
    if is_json:
        click.echo(json.dumps(found, indent=1))
        return
    for name, value in found.items():
        click.echo(f"{name:28} {value if isinstance(value, int | float | str) else len(value)}")


if __name__ == "__main__":
    main()
