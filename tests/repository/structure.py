"""The source tree in figures: python -m tests.repository.structure [--json] [--root FOLDER]

How many rooms it has and what leads from one to another, how deep it is stacked, which names have two meanings, what
travels untyped, and which files are long. `test_structure.py` holds these figures from getting worse."""

from __future__ import annotations

import ast
import functools
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from tests import REPOSITORY
from tests.repository.architecture import OURS, Graph, Module, functions, import_cycles, read_modules, use_graph

LONG_FILE_LINES = 300
LONGEST_FILES = 5
# Where libraries hand us dictionaries of whatever they like.
ADAPTERS = ("sfnode.network.transport", "sfnode.training")


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """What was measured; lists name what a figure counts. Rooms, arrows and levels are those of protocol/ and sfnode/,
    names, signatures and files those of benchmarks/ too."""

    rooms: tuple[str, ...]  # folders directly in protocol/ and sfnode/, and the modules that lie beside them
    arrows: int  # pairs of rooms of which one imports from the other
    arrows_in_circles: tuple[str, ...]
    levels: int  # rooms in the longest chain of arrows; a circle counts as one
    rooms_seen_from_sfnode: int  # the same with all of protocol/ as one room
    arrows_seen_from_sfnode: int
    protocol_levels: int  # rooms of protocol/ in the longest chain of arrows
    protocol_module_levels: int  # its modules in the longest chain of imports
    import_circles: tuple[str, ...]  # of modules
    loose_modules: dict[str, int]  # folder -> files of code directly in it
    file_names_twice: dict[str, tuple[str, ...]]
    class_names_twice: dict[str, tuple[str, ...]]
    untyped_signatures: tuple[str, ...]  # functions with dict[str, Any] among their parameters or as their result
    longest_files: dict[str, int]
    files_over_300_lines: int


def measure(modules: tuple[Module, ...]) -> Structure:
    """All figures of a tree of protocol/, sfnode/ and benchmarks/."""
    house = tuple(module for module in modules if module.is_in(*OURS))
    uses = use_graph(house)
    rooms = _room_graph(house, uses, rooms_of(house))
    from_sfnode = _room_graph(house, uses, rooms_of(house, as_one="protocol"))
    core = _only(uses, "protocol")
    longest = sorted(modules, key=lambda module: (-module.lines, module.path))
    return Structure(
        rooms=tuple(sorted(rooms)),
        arrows=_arrows(rooms),
        arrows_in_circles=tuple(circle_arrows(rooms)),
        levels=levels(rooms),
        rooms_seen_from_sfnode=len(from_sfnode),
        arrows_seen_from_sfnode=_arrows(from_sfnode),
        protocol_levels=levels(_only(rooms, "protocol")),
        protocol_module_levels=levels(core),
        import_circles=tuple(import_cycles(modules)),
        loose_modules=loose_modules(modules),
        file_names_twice=file_names_twice(modules),
        class_names_twice=class_names_twice(modules),
        untyped_signatures=tuple(line for module in modules for line in untyped_signatures(module)),
        longest_files={module.path: module.lines for module in longest[:LONGEST_FILES]},
        files_over_300_lines=sum(module.lines > LONG_FILE_LINES for module in modules),
    )


# --- rooms


def rooms_of(modules: tuple[Module, ...], *, as_one: str = "") -> dict[str, str]:
    """Module -> its room: the folder directly in the top one, with all that lies in it, or the module itself where it
    lies beside such folders. A top folder without folders is one room, and so is `as_one`."""
    packages = {module.name for module in modules if module.is_package}
    divided = {package.partition(".")[0] for package in packages if "." in package} - {as_one}
    parts = {module.name: module.name.split(".") for module in modules}
    return {name: ".".join(path[:2]) if path[0] in divided else path[0] for name, path in parts.items()}


def _room_graph(modules: tuple[Module, ...], uses: Graph, rooms: dict[str, str]) -> Graph:
    graph: dict[str, set[str]] = {rooms[module.name]: set() for module in modules}
    for user, used in uses.items():
        graph[rooms[user]] |= {rooms[name] for name in used} - {rooms[user]}
    return {room: frozenset(reached) for room, reached in graph.items()}


def _only(graph: Graph, package: str) -> Graph:
    return {name: used for name, used in graph.items() if name.partition(".")[0] == package}


def _arrows(graph: Graph) -> int:
    return sum(len(reached) for reached in graph.values())


def circle_arrows(graph: Graph) -> Iterator[str]:
    """Arrows that can be followed back to where they start."""
    for start in sorted(graph):
        for end in sorted(graph[start]):
            if start in _reached(graph, end):
                yield f"{start} -> {end}"


def levels(graph: Graph) -> int:
    """How many nodes the longest chain of the graph has; nodes in one circle count as one."""
    circles = {name: _circle(graph, name) for name in graph}

    @functools.cache
    def depth(circle: frozenset[str]) -> int:
        below = {circles[end] for name in circle for end in graph[name] if end in graph} - {circle}
        return 1 + max((depth(other) for other in below), default=0)

    return max((depth(circle) for circle in circles.values()), default=0)


def _circle(graph: Graph, name: str) -> frozenset[str]:
    """The node, and those that it reaches and that reach it."""
    return frozenset({name} | {other for other in _reached(graph, name) if name in _reached(graph, other)})


def _reached(graph: Graph, start: str) -> set[str]:
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        found = graph.get(waiting.pop(), frozenset()) - reached
        reached |= found
        waiting.extend(found)
    return reached


# --- names, signatures, files


def loose_modules(modules: tuple[Module, ...]) -> dict[str, int]:
    """Folder -> files of code that lie directly in it; faces and `__main__` are not counted."""
    return dict(Counter(str(Path(module.path).parent) for module in _named(modules)).most_common())


def file_names_twice(modules: tuple[Module, ...]) -> dict[str, tuple[str, ...]]:
    """Room and base name -> paths, where there are several in one room."""
    rooms = rooms_of(modules)
    return _several((f"{rooms[module.name]}: {Path(module.path).name}", module.path) for module in _named(modules))


def class_names_twice(modules: tuple[Module, ...]) -> dict[str, tuple[str, ...]]:
    """Class name -> places, where there are several."""
    return _several(
        (node.name, f"{module.path}:{node.lineno}")
        for module in modules
        for node in module.nodes
        if isinstance(node, ast.ClassDef)
    )


def _named(modules: tuple[Module, ...]) -> Iterator[Module]:
    return (module for module in modules if not module.path.endswith(("__init__.py", "__main__.py")))


def _several(pairs: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    places: dict[str, list[str]] = {}
    for name, place in pairs:
        places.setdefault(name, []).append(place)
    return {name: tuple(found) for name, found in sorted(places.items()) if len(found) > 1}


def untyped_signatures(module: Module) -> Iterator[str]:
    """Functions outside the adapters that take or return `dict[str, Any]`, also as a part of another type."""
    if module.is_in(*ADAPTERS):
        return
    for function in functions(module):
        annotations = [function.returns, *_parameter_types(function.args)]
        if any(kind is not None and "dict[str, Any]" in ast.unparse(kind) for kind in annotations):
            yield module.at(function, f"{function.name}()")


def _parameter_types(arguments: ast.arguments) -> Iterator[ast.expr | None]:
    several = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    others = [argument for argument in (arguments.vararg, arguments.kwarg) if argument]
    return (argument.annotation for argument in [*several, *others])


# --- the command


def text(found: Structure) -> str:
    """The figures for people, one fact a line."""
    most = ", ".join(f"{folder} {files}" for folder, files in list(found.loose_modules.items())[:4])
    longest = ", ".join(f"{path} {lines}" for path, lines in found.longest_files.items())
    rows: list[tuple[str, object]] = [
        ("rooms", len(found.rooms)),
        ("arrows between them", found.arrows),
        ("arrows in a circle", f"{len(found.arrows_in_circles)}  {', '.join(found.arrows_in_circles)}"),
        ("levels of rooms", found.levels),
        ("rooms, protocol/ as one", found.rooms_seen_from_sfnode),
        ("arrows, protocol/ as one", found.arrows_seen_from_sfnode),
        ("levels of rooms, protocol/", found.protocol_levels),
        ("levels of modules, protocol/", found.protocol_module_levels),
        ("import circles", len(found.import_circles)),
        ("most files in one folder", most),
        ("file names twice", f"{len(found.file_names_twice)}  {', '.join(found.file_names_twice)}"),
        ("class names twice", f"{len(found.class_names_twice)}  {', '.join(found.class_names_twice)}"),
        ("signatures with dict[str, Any]", len(found.untyped_signatures)),
        ("longest files", longest),
        (f"files over {LONG_FILE_LINES} lines", found.files_over_300_lines),
    ]
    return "\n".join(f"{name:<31} {value}".rstrip() for name, value in rows)


@click.command()
@click.option("--json", "is_json", is_flag=True, help="Print everything that was found as JSON.")
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=REPOSITORY,
    help="Measure the tree in this folder, for instance an older commit unpacked there.",
)
def main(is_json: bool, root: Path) -> None:
    """Measure the source tree: rooms, arrows, levels, names with two meanings, untyped signatures, long files."""
    found = measure(read_modules(*OURS, "benchmarks", root=root))
    click.echo(json.dumps(asdict(found), indent=1) if is_json else text(found))


if __name__ == "__main__":
    main()
