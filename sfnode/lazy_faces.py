"""Faces of packages whose names are imported when they are asked for: torch, libp2p and NumPy take seconds."""

import ast
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path


def lazy_face(package: str, file: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package that imports a module when one of its names is asked for.

    ``file`` imports them from their rooms as type checkers read it: a stub, or the package's own file, below
    `if TYPE_CHECKING:`.
    """

    @cache
    def places() -> dict[str, str]:
        found = ast.walk(ast.parse(Path(file).read_text("utf-8")))
        imports = (node for node in found if isinstance(node, ast.ImportFrom))
        ours = [node for node in imports if str(node.module).startswith(("sfnode.", "protocol."))]
        return {each.name: str(node.module) for node in ours for each in node.names}

    def get(name: str) -> object:
        module = None if name.startswith("__") else places().get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return import_module(f"{package}.{name}") if module == package else getattr(import_module(module), name)

    return get, lambda: sorted({"__version__", *places()} if package == "sfnode" else places())
