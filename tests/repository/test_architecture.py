"""The architecture's rules hold in the whole tree, and each rule can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

import protocol
from tests import REPOSITORY
from tests.repository import architecture, architecture_rules as rules, boundaries, faces
from tests.repository.architecture import Module, TreeRule, parse
from tests.repository.architecture_rules import Rule

# Rules that concern all modules together; those of the faces have their offenders in test_faces.py.
TREE_RULES: tuple[TreeRule, ...] = (
    architecture.broken_layers,
    architecture.import_cycles,
    faces.deep_imports,
    faces.hidden_names,
    faces.unlisted_names,
    faces.borrowed_names,
    faces.nameless_doors,
)

# For each rule: the module it is about and source that breaks it exactly once.
LONG_FUNCTION = "def f():\n    '''Text.'''\n" + "    x = 1\n" * rules.FUNCTION_LINES_MAX
OFFENDERS: tuple[tuple[Rule, str, str], ...] = (
    (rules.purity, "protocol.x", "import time\n"),
    (rules.purity, "protocol.x", "def f():\n    return open('a')\n"),
    (rules.purity, "protocol.x", "import numpy as np\nx = np.random.default_rng(1)\n"),
    (rules.set_order, "protocol.x", "for x in {1, 2}:\n    pass\n"),
    (rules.set_order, "protocol.x", "def f(peers: set[int]):\n    return [x for x in peers]\n"),
    (rules.set_order, "protocol.x", "held = frozenset(())\ntext = b''.join(x for x in held)\n"),
    (rules.global_randomness, "sfnode.training.x", "import torch\nx = torch.randn(3)\n"),
    (rules.imports_on_top, "sfnode.x", "def f():\n    import json\n"),
    (rules.imports_on_top, "sfnode.x", "def f():\n    import torch\n"),
    (rules.imports_on_top, "sfnode.cli.x", "def f():\n    from sfnode.network import host\n"),
    (rules.constants, "sfnode.x", "A = 1\nA = 2\n"),
    (rules.constants, "sfnode.x", "A: int = 1\nA += 2\n"),
    (rules.constants, "protocol.x", "def f():\n    limits.FRAME_MAX = 2\n"),
    (rules.constants, "protocol.x", "A = 1\ndef f():\n    global A\n    A = 2\n"),
    (rules.relative_imports, "sfnode.x", "from . import y\n"),
    (rules.function_length, "sfnode.x", LONG_FUNCTION),
    (rules.file_length, "sfnode.x", "x = 1\n" * (rules.FILE_LINES_MAX + 1)),
    (rules.parameter_count, "sfnode.x", "def f(a, b, c, d, e, f, *, g): ...\n"),
    (rules.typed_options, "sfnode.x", "def f(options: dict[str, Any]): ...\n"),
    (rules.typed_options, "protocol.x", "def f() -> tuple[int, dict[str, Any]]: ...\n"),
    (rules.typed_options, "sfnode.run.x", "import click\n"),
    (rules.nesting, "sfnode.x", "def f():\n if a:\n  for b in c:\n   with d:\n    while e:\n     pass\n"),
    (rules.catch_all, "sfnode.x", "def f():\n    try: g()\n    except (OSError, Exception): pass\n"),
    (rules.catch_all, "sfnode.x", "def f():\n    try: g()\n    except: pass\n"),
    (rules.children_room, "sfnode.x", "import subprocess\nsubprocess.run(['ls'])\n"),
    (rules.children_room, "sfnode.x", "from trio.lowlevel import open_process\n"),
    (rules.children_room, "protocol.x", "import os\nstart = os.posix_spawn\n"),
    (rules.children_room, "sfnode.x", "import multiprocessing.pool\n"),
    (rules.children_room, "sfnode.x", "import subprocess\nsubprocess.Popen[bytes](['ls'])\n"),
    (rules.plain_names, "sfnode.file_utils", "x = 1\n"),
    (rules.plain_names, "sfnode.x", "class PeerManager: ...\n"),
    (rules.header, "sfnode.x", "x = 1\n"),
    (rules.printed_commands, "sfnode.x", '"""A."""\nsay(f"again: sfnode start --data-dir {directory}")\n'),
    (rules.printed_commands, "sfnode.x", '"""A."""\nsay(f"`sfnode id restore BACKUP --key {path} --force`")\n'),
    (rules.names_of_tests, "tests.test_x", "def test_it_works(): ...\n"),
    (rules.names_of_tests, "tests.protocol.test_x", "def test_ledger__works(): ...\n"),
    (rules.declared_dependencies, "sfnode.x", "import pandas\n"),
    (boundaries.tasks_have_boundaries, "sfnode.node.x", "def f(nursery):\n    nursery.start_soon(self.look, 1)\n"),
    (boundaries.tasks_have_boundaries, "sfnode.network.x", "def f(n):\n    n.start_soon(partial(look, 1))\n"),
)
# Close to an offence, but not one.
CLEAN: tuple[tuple[Rule, str, str], ...] = (
    (rules.purity, "protocol.x", "import numpy as np\nfrom protocol.errors import Reject\n"),
    (rules.purity, "sfnode.x", "import time\n"),
    (rules.set_order, "protocol.x", "held = {1, 2}\nfor x in sorted(held):\n    pass\ny = sum(x for x in held)\n"),
    (rules.imports_on_top, "sfnode.cli.x", "def f():\n    from sfnode.training import models\n"),
    (rules.constants, "sfnode.x", "A = 1\na = 2\na = A\ndef f():\n    A = 2\nclass B:\n    A = 3\n"),
    (rules.function_length, "sfnode.x", "def f():\n    '''" + "Text.\n" * 99 + "'''\n    return 1\n"),
    (rules.parameter_count, "sfnode.x", "def f(self, a, b, c, d, e, f): ...\n"),
    (rules.parameter_count, "sfnode.x", "@click.option('--a')\ndef f(a, b, c, d, e, f, g): ...\n"),
    (rules.typed_options, "sfnode.cli.x", "from click import option\ndef f(x: Mapping[str, object]): ...\n"),
    (rules.nesting, "sfnode.x", "def f():\n if a: pass\n elif b: pass\n elif c: pass\n elif d: pass\n else: pass\n"),
    (rules.nesting, "sfnode.x", "def f():\n with a:\n  if b:\n   def g():\n    for c in d:\n     pass\n"),
    (rules.catch_all, "sfnode.x", "def f():\n    try: g()\n    except OSError: pass\n"),
    (rules.catch_all, "sfnode.x", "def f():\n    try: g()\n    except BaseException:\n        h()\n        raise\n"),
    (rules.children_room, "sfnode.children.x", "import subprocess\nsubprocess.run(['ls'])\n"),
    (rules.children_room, "sfnode.x", "import subprocess\ndef f(p: subprocess.Popen[bytes]): p.wait()\n"),
    (rules.children_room, "tests.x", "import os\nos.fork()\n"),
    (rules.names_of_tests, "tests.test_x", "def test_ledger__same_update_twice__counts_once(): ...\n"),
    (rules.declared_dependencies, "sfnode.x", "import os\nimport nacl.signing\nimport torch.nn\n"),
    (boundaries.tasks_have_boundaries, "sfnode.node.x", "def f(n):\n    n.start_soon(slips.outlive, 'x', look)\n"),
    (boundaries.tasks_have_boundaries, "sfnode.keys.x", "def f(n):\n    n.start_soon(look)\n"),
)


def whole_tree() -> tuple[Module, ...]:
    return architecture.read_modules(*architecture.OURS, "tests")


def report(offenders: list[str]) -> str:
    return f"{len(offenders)} offender(s):\n" + "\n".join(offenders)


def sources(texts: dict[str, str]) -> tuple[Module, ...]:
    return tuple(parse(text, name, f"{name}.py") for name, text in texts.items())


@pytest.mark.parametrize("rule", [*rules.RULES, boundaries.tasks_have_boundaries], ids=lambda rule: rule.__name__)
def test_architecture__rule_for_one_module__holds_in_the_whole_tree(rule: Rule) -> None:
    offenders = [line for module in whole_tree() for line in rule(module)]
    assert not offenders, report(offenders)


@pytest.mark.parametrize(("rule", "name", "source"), OFFENDERS)
def test_architecture__offending_source__is_named_once_with_its_place(rule: Rule, name: str, source: str) -> None:
    offenders = list(rule(parse(source, name, "x.py")))
    assert len(offenders) == 1, report(offenders)
    assert offenders[0].startswith("x.py:")


@pytest.mark.parametrize(("rule", "name", "source"), CLEAN)
def test_architecture__allowed_source__is_not_named(rule: Rule, name: str, source: str) -> None:
    assert list(rule(parse(source, name, "x.py"))) == []


def test_architecture__rules__each_has_an_offender_that_it_catches() -> None:
    assert {rule for rule, _, _ in OFFENDERS} == {*rules.RULES, boundaries.tasks_have_boundaries}


def test_architecture__tasks_with_a_boundary_elsewhere__are_all_still_started() -> None:
    gone = boundaries.TASKS.keys() - boundaries.started_tasks(whole_tree())
    assert not gone, f"listed, and started nowhere: {sorted(gone)}"


def test_architecture__exceptions__all_still_exist() -> None:
    """A permission whose module or function is gone would silently pass to the next one of that name."""
    places = {(module.name, function.name) for module in whole_tree() for function in architecture.functions(module)}
    assert set(rules.CATCH_ALL) <= places, sorted(set(rules.CATCH_ALL) - places)


@pytest.mark.parametrize("rule", TREE_RULES, ids=lambda rule: rule.__name__)
def test_architecture__rule_for_all_modules__holds_in_the_whole_tree(rule: TreeRule) -> None:
    offenders = list(rule(whole_tree() + architecture.read_modules("benchmarks")))
    assert not offenders, report(offenders)


def test_architecture__layer_that_reaches_torch_through_another_module__is_named_with_the_way() -> None:
    tree = sources({"sfnode.network.host": "from sfnode import files", "sfnode.files": "import torch.nn"})
    assert list(architecture.broken_layers(tree)) == [
        "sfnode.network.host.py:1: sfnode.network must not reach torch: sfnode.network.host -> sfnode.files -> torch"
    ]


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("protocol.x", "from sfnode.storage.record_store import Store"),
        ("sfnode.network.x", "import transformers"),
        ("sfnode.training.x", "import trio"),
        ("sfnode.training.x", "from libp2p import new_host"),
        ("sfnode.cli.x", "import torch"),
    ],
)
def test_architecture__layer_that_imports_what_it_must_not__is_named(name: str, source: str) -> None:
    assert len(list(architecture.broken_layers(sources({name: source})))) == 1


def test_architecture__lazy_import_in_the_command_line__is_allowed() -> None:
    assert not list(architecture.broken_layers(sources({"sfnode.cli.x": "def f():\n    import torch\n"})))


def test_architecture__two_modules_that_import_each_other__are_a_cycle() -> None:
    tree = sources({"sfnode": "", "sfnode.a": "import sfnode.b", "sfnode.b": "from sfnode.a import x"})
    cycles = list(architecture.import_cycles(tree))
    assert cycles == [
        "sfnode.a.py:1: import cycle sfnode.a -> sfnode.b -> sfnode.a",
        "sfnode.b.py:1: import cycle sfnode.b -> sfnode.a -> sfnode.b",
    ]


def test_architecture__protocol__is_the_one_of_this_repository() -> None:
    """The name is short enough that another installed package could be imported in its place."""
    assert Path(protocol.__file__).parent == REPOSITORY / "protocol"
