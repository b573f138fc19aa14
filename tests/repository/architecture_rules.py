"""The rules of the architecture that concern one module: functions from a parsed module to its offenders. Whatever a
rule permits by exception is listed here, with the reason. `tests/repository/test_architecture.py` applies them."""

from __future__ import annotations

import ast
import functools
import re
import sys
import tomllib
from collections.abc import Callable, Iterator

from tests import REPOSITORY
from tests.repository.architecture import OURS, TORCH, Module, dotted, functions, imported_names, own_nodes

FUNCTION_LINES_MAX = 60  # without its docstring; aim for 10
FILE_LINES_MAX = 400
PARAMETERS_MAX = 6
NESTING_MAX = 3

# Everything `protocol/` may import. All of it is pure; whoever adds a name answers for that.
PURE_IMPORTS = frozenset(
    "__future__ abc array base64 binascii bisect collections contextlib dataclasses decimal enum fractions functools "
    "hashlib heapq hmac itertools json math numbers operator re statistics string struct tomllib types typing "
    "unicodedata msgpack nacl numpy protocol".split()
)
# Impure built-ins and NumPy doors to files and to the global generator. `hash` differs between processes.
IMPURE_CALLS = frozenset("open print input hash id exec eval breakpoint globals".split())
IMPURE_NUMPY = frozenset("random load save savez fromfile tofile memmap loadtxt savetxt genfromtxt".split())
# Torch's and NumPy's generators, whose output no two machines agree on (traps: randomness).
GLOBAL_RANDOMNESS = frozenset(
    "torch.manual_seed torch.seed torch.rand torch.randn torch.randint torch.randperm torch.rand_like torch.randn_like "
    "torch.bernoulli torch.normal torch.multinomial torch.cuda.manual_seed torch.cuda.manual_seed_all "
    "np.random numpy.random random.random random.seed random.shuffle random.choice random.randrange".split()
)
TRAINING = ("sfnode.training", "sfnode.api.local_model")  # they import torch
OF_EXTRAS = ("sfnode.web",)  # rooms that need an extra other than `train`: only the command line asks for them
FOREIGN_CONSTANTS = ("yamux",)  # modules of libraries: one of its constants makes libp2p unsafe
LAZY_IMPORTERS = ("sfnode.cli", "tests")  # may import, inside a function, what leads to torch or to an extra

# (module, function) -> why a fault of any kind ends there: it must not take the host or the daemon down.
CATCH_ALL = {
    ("sfnode.training.model.load_errors", "named_errors"): "tokenizers raises nothing narrower",
    ("protocol.wire", "_unpack_untrusted"): "msgpack documents no closed list of what bad bytes raise",
    ("sfnode.network.transport.host", "dial"): "libp2p documents none for a handshake with whoever answers",
    (
        "sfnode.network.discovery.port_mapping",
        "_call",
    ): "miniupnpc raises nothing narrower",
    (
        "sfnode.training.worker_process",
        "answer",
    ): "one request of the worker: its fault must not end the other nodes' sessions",
    ("sfnode.web.server", "_look"): "what is shown of a node must not end it",
    ("sfnode.web.server", "_serve"): "one browser's connection: the node and the other browsers go on",
    ("tests.simulation.world", "run_scenario"): "whatever escapes the core is a finding, and belongs to its seed",
    ("tests.support.patience", "until_it_ends"): "whatever a test raises is raised again, once its limit is dropped",
    ("tests.faults.world", "_run"): "however a node ends, it is judged",
    ("tests.fuzz.test_corpus", "_escapes"): "whatever escapes a decoder is a finding, and belongs to its input",
    ("tests.field.trial", "try_run"): "a traceback is what is looked for",
    ("tests.architectures.every", "_child"): "an architecture that raises is what is looked for",
}

# What starts a process. In one room alone: there a child loses the current folder from its path, and ends with us.
ROOM_OF_CHILDREN = "sfnode.children"
STARTS_PROCESSES = frozenset(
    "subprocess.Popen subprocess.run subprocess.call subprocess.check_call subprocess.check_output "
    "subprocess.getoutput subprocess.getstatusoutput os.system os.popen os.fork os.forkpty os.posix_spawn "
    "os.posix_spawnp os.execl os.execle os.execlp os.execlpe os.execv os.execve os.execvp os.execvpe os.spawnl "
    "os.spawnle os.spawnlp os.spawnlpe os.spawnv os.spawnve os.spawnvp os.spawnvpe os.startfile pty.fork pty.spawn "
    "trio.run_process trio.lowlevel.open_process anyio.run_process anyio.open_process asyncio.create_subprocess_exec "
    "asyncio.create_subprocess_shell concurrent.futures.ProcessPoolExecutor".split()
)

VAGUE_NAMES = frozenset("utils util helpers helper manager misc common".split())
# Import name -> name on the package index, where they differ.
DISTRIBUTIONS = {"huggingface_hub": "huggingface-hub", "nacl": "pynacl", "re2": "google-re2", "yaml": "pyyaml"}

# The beginning of a command that an f-string goes on with a value: "\0" stands for the value.
BARE_WORD_OF_COMMAND = re.compile(
    r"\b(?:chmod|python|sfnode (?:ask|audit|bench|config|doctor|eval|export|id|init|join|log|pause|report|resume|run|"
    r"start|status|stop|testnet|top))(?: [a-z0-9]+| [A-Z]+| --?[a-z-]+)* \0"
)

Rule = Callable[[Module], Iterator[str]]


def purity(module: Module) -> Iterator[str]:
    """protocol/ imports only what is pure, and opens no file, clock or generator by another door."""
    if not module.is_in("protocol"):
        return
    for node in module.nodes:
        for name in imported_names(node):
            if name.partition(".")[0] not in PURE_IMPORTS:
                yield module.at(node, f"imports {name}, which is not on the list of pure modules")
        if isinstance(node, ast.Call) and dotted(node.func) in IMPURE_CALLS:
            yield module.at(node, f"calls {dotted(node.func)}()")
        if isinstance(node, ast.Attribute) and dotted(node.value) in ("np", "numpy") and node.attr in IMPURE_NUMPY:
            yield module.at(node, f"uses {dotted(node)}")


def set_order(module: Module) -> Iterator[str]:
    """protocol/ never walks a set in its own order: that order differs between processes."""
    if not module.is_in("protocol"):
        return
    sets = frozenset(_names_of_sets(module))
    for node in module.nodes:
        for walked in _walked_in_order(node):
            if _is_set(walked, sets):
                yield module.at(walked, f"walks the set {ast.unparse(walked)} in its own order; use sorted()")


def _names_of_sets(module: Module) -> Iterator[str]:
    """Variables and attributes that this module declares as sets or fills with one."""
    for node in module.nodes:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation).startswith(("set[", "frozenset[")):
            yield dotted(node.target)
        elif (
            isinstance(node, ast.arg)
            and node.annotation
            and ast.unparse(node.annotation).startswith(("set[", "frozenset["))
        ):
            yield node.arg
        elif isinstance(node, ast.Assign) and _is_set(node.value, frozenset()):
            yield from (dotted(target) for target in node.targets)


def _is_set(node: ast.AST, names: frozenset[str]) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.Call):
        return dotted(node.func) in ("set", "frozenset")
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr | ast.Sub | ast.BitXor):
        return _is_set(node.left, names) or _is_set(node.right, names)
    return dotted(node) in names - {""}


def _walked_in_order(node: ast.AST) -> Iterator[ast.expr]:
    """Expressions whose order of elements the node lets through: loops, list-like comprehensions, list(), join()."""
    if isinstance(node, ast.For):
        yield node.iter
    elif isinstance(node, ast.ListComp | ast.DictComp):
        yield from (generator.iter for generator in node.generators)
    elif isinstance(node, ast.Call) and len(node.args) == 1 and _keeps_order(node.func):
        yield node.args[0]
        if isinstance(node.args[0], ast.GeneratorExp):
            yield from (generator.iter for generator in node.args[0].generators)


def _keeps_order(function: ast.expr) -> bool:
    if isinstance(function, ast.Attribute):
        return function.attr in ("join", "extend")
    return dotted(function) in ("list", "tuple", "enumerate", "iter")


def global_randomness(module: Module) -> Iterator[str]:
    """No generator of NumPy, torch or Python in what computes updates: all shared randomness is counter-based."""
    if not module.is_in("protocol", "sfnode.training"):
        return
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and dotted(node) in GLOBAL_RANDOMNESS:
            yield module.at(node, f"uses {dotted(node)}")


def imports_on_top(module: Module) -> Iterator[str]:
    """No import inside a function, but for the command line's lazy way to torch."""
    if not any(isinstance(node, ast.Import | ast.ImportFrom) and node.col_offset for node in module.nodes):
        return  # most modules, at a glance
    may_be_lazy = module.is_in(*LAZY_IMPORTERS)
    imports = ((function, node) for function in functions(module) for node in own_nodes(function))
    for function, node in imports:
        for name in imported_names(node):
            leads_to_torch = name.partition(".")[0] in TORCH or name.startswith((*TRAINING, *OF_EXTRAS))
            if not (may_be_lazy and leads_to_torch):
                yield module.at(node, f"{function.name}() imports {name}")


def constants(module: Module) -> Iterator[str]:
    """A name in capitals at the top of a module is set once, and from nowhere else: so none of ours needs `Final`."""
    if not module.is_in(*OURS):
        return
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr.isupper():
            sets_one = dotted(node.value) not in FOREIGN_CONSTANTS
        else:
            sets_one = isinstance(node, ast.Global) and any(map(str.isupper, node.names))
        if sets_one:
            yield module.at(node, f"sets a constant: {ast.unparse(node)}")
    seen: set[str] = set()
    for statement in module.tree.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        names = {name.id for each in targets if each for name in ast.walk(each) if isinstance(name, ast.Name)}
        for name in sorted(names & seen):
            yield module.at(statement, f"sets {name} again")
        seen |= {name for name in names if name.isupper()}


def relative_imports(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.ImportFrom) and node.level:
            yield module.at(node, "relative import")


def function_length(module: Module) -> Iterator[str]:
    for function in functions(module):
        lines = (function.end_lineno or function.lineno) - function.lineno + 1 - _docstring_lines(function)
        if lines > FUNCTION_LINES_MAX:
            yield module.at(function, f"{function.name}() has {lines} lines, at most {FUNCTION_LINES_MAX}")


def _docstring_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    if ast.get_docstring(function) is None:
        return 0
    first = function.body[0]
    return (first.end_lineno or first.lineno) - first.lineno + 1


def file_length(module: Module) -> Iterator[str]:
    if module.lines > FILE_LINES_MAX:
        yield f"{module.path}:1: {module.lines} lines, at most {FILE_LINES_MAX}"


def parameter_count(module: Module) -> Iterator[str]:
    """At most six parameters, keyword-only ones included. Click callbacks are free: each option of a command is one."""
    for function in functions(module):
        arguments = function.args
        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        count = sum(argument.arg not in ("self", "cls") for argument in named)
        if count > PARAMETERS_MAX and not _is_click_callback(function):
            yield module.at(function, f"{function.name}() has {count} parameters, at most {PARAMETERS_MAX}")


def _is_click_callback(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    calls = (node.func for node in function.decorator_list if isinstance(node, ast.Call))
    return any(dotted(call).endswith((".command", ".option", ".argument")) for call in calls)


def typed_options(module: Module) -> Iterator[str]:
    """What travels has a type: no signature of ours passes `dict[str, Any]`, and click is seen in sfnode.cli alone."""
    if not module.is_in(*OURS):
        return
    for function in functions(module):
        arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        for annotation in (*(each.annotation for each in arguments), function.returns):
            if annotation is not None and "dict[str, Any]" in ast.unparse(annotation):
                yield module.at(function, f"{function.name}() passes dict[str, Any]; say what is in it")
    for node in module.nodes:
        if not module.is_in("sfnode.cli") and any(name.split(".")[0] == "click" for name in imported_names(node)):
            yield module.at(node, "imports click: only the command line knows how something was typed")


BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)


def nesting(module: Module) -> Iterator[str]:
    """At most three blocks inside each other; `elif` stays on its level, a nested function starts anew."""
    for function in functions(module):
        deepest, line = _depth(function, 0)
        if deepest > NESTING_MAX:
            yield f"{module.path}:{line}: {function.name}() nests {deepest} deep, at most {NESTING_MAX}"


def _depth(node: ast.AST, depth: int) -> tuple[int, int]:
    """The deepest block below `node` and its line."""
    found = (depth, getattr(node, "lineno", 1))
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue  # no block stands inside an expression
        is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        found = max(found, _depth(child, depth + (isinstance(child, BLOCKS) and not is_elif)))
    return found


def catch_all(module: Module) -> Iterator[str]:
    """`except Exception` and wider only at the listed boundaries, or to clean up and raise the same again."""
    for function in functions(module):
        for node in own_nodes(function):
            is_allowed = (module.name, function.name) in CATCH_ALL
            if isinstance(node, ast.ExceptHandler) and _swallows_everything(node) and not is_allowed:
                yield module.at(node, f"{function.name}() catches everything and is not a listed boundary")


def _swallows_everything(handler: ast.ExceptHandler) -> bool:
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    is_wide = any(kind is None or dotted(kind) in ("Exception", "BaseException") for kind in caught)
    last = handler.body[-1]
    return is_wide and not (isinstance(last, ast.Raise) and last.exc is None)


def children_room(module: Module) -> Iterator[str]:
    """sfnode starts processes in one room alone, and by no other door."""
    if not module.is_in(*OURS) or module.is_in(ROOM_OF_CHILDREN):
        return
    called = {id(node.func) for node in module.nodes if isinstance(node, ast.Call)}
    subscripts = [node for node in module.nodes if isinstance(node, ast.Subscript)]
    types = {id(node.value) for node in subscripts if id(node) not in called}  # `Popen[bytes]`
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and dotted(node) in STARTS_PROCESSES and id(node) not in types:
            yield module.at(node, f"uses {dotted(node)}: only {ROOM_OF_CHILDREN} starts processes")
        for name in imported_names(node):
            if name in STARTS_PROCESSES or name.partition(".")[0] == "multiprocessing":
                yield module.at(node, f"imports {name}: only {ROOM_OF_CHILDREN} starts processes")


def plain_names(module: Module) -> Iterator[str]:
    """No utils, helpers or manager: such names say nothing."""
    if VAGUE_NAMES & set(module.name.rpartition(".")[2].lower().split("_")):
        yield f"{module.path}:1: vague module name"
    for node in module.nodes:
        if isinstance(node, ast.ClassDef) and node.name.lower().endswith(("utils", "helper", "helpers", "manager")):
            yield module.at(node, f"vague class name {node.name}")


def header(module: Module) -> Iterator[str]:
    """Every file with code says in its docstring what it is for."""
    if module.tree.body and ast.get_docstring(module.tree) is None:
        yield f"{module.path}:1: no module docstring"


def names_of_tests(module: Module) -> Iterator[str]:
    """test_<subject>__<condition>__<verdict>"""
    if not (module.is_in("tests") and module.name.rpartition(".")[2].startswith("test_")):
        return
    for function in functions(module):
        if function.name.startswith("test_") and len(function.name.split("__")) != 3:
            yield module.at(function, f"{function.name} is not test_<subject>__<condition>__<verdict>")


def printed_commands(module: Module) -> Iterator[str]:
    """A command that is printed can be pasted: one function quotes its words, and no f-string puts them in bare."""
    for node in ast.walk(module.tree) if module.is_in(*OURS) else ():
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "\0" for part in node.values)
            if found := BARE_WORD_OF_COMMAND.search(text):
                yield module.at(node, f"prints {found[0][:-1]}{{...}} unquoted: use sfnode.storage.pasteable")


def declared_dependencies(module: Module) -> Iterator[str]:
    """Whatever is imported is declared in pyproject.toml, so that an installed sfnode has it."""
    if not module.is_in(*OURS):
        return
    for node in module.nodes:
        for name in imported_names(node):
            root = name.partition(".")[0]
            if (
                root not in OURS
                and root not in sys.stdlib_module_names
                and DISTRIBUTIONS.get(root, root) not in declared()
            ):
                yield module.at(node, f"imports {root}, which pyproject.toml does not declare")


@functools.cache
def declared() -> frozenset[str]:
    """Distributions that an install without development tools brings: the dependencies and the extras of users."""
    content = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
    project, inside = content["project"], content["tool"]["sfnode"]["bundled"]["requirement"]
    extras = project["optional-dependencies"]
    wanted = [inside, *project["dependencies"], *extras["train"], *extras["web"], *extras["privacy"]]
    return frozenset(re.split(r"[^\w-]", requirement, maxsplit=1)[0].lower() for requirement in wanted)


RULES: tuple[Rule, ...] = (
    purity,
    set_order,
    global_randomness,
    imports_on_top,
    constants,
    relative_imports,
    function_length,
    file_length,
    parameter_count,
    typed_options,
    nesting,
    catch_all,
    children_room,
    plain_names,
    header,
    names_of_tests,
    printed_commands,
    declared_dependencies,
)
