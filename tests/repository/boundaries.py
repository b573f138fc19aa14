"""Who may let an exception pass: every task of a running node, and where what it raises ends.

A node ends for `sfnode.unexpected_errors.ENDINGS` alone. So each task that its nurseries start either begins with a
boundary (`Slips.outlive`, `Slips.contained`), or stands in `TASKS` with the place where its exceptions are caught.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.repository.architecture import Module, dotted, functions, own_nodes

ROOMS = ("sfnode.network", "sfnode.node", "sfnode.worker", "sfnode.web", "sfnode.metrics", "sfnode.cli.joining")
STARTERS = ("start_soon", "start", "serve_listeners")
BOUNDARIES = ("outlive", "contained")

_LIFE = "a slip ends this life of the node, and the next begins from the disk: `Daemon.run`"
_SESSION = "it ends the session: `Dialler._dial_and_run`, `Host._accept`"
_TRAINING = "it ends the present try to train: `Overseer.run`"
_PAGE = "it ends the page's server, which begins anew: `page_served`"
# (module, what is started) -> where its exceptions end.
TASKS = {
    ("sfnode.node.running_node", "self.network.run"): _LIFE,
    ("sfnode.node.running_node", "self._watch.run"): "contains each of its turns itself",
    ("sfnode.node.running_node", "self._snapshot_files.run"): "contains each file itself",
    ("sfnode.node.running_node", "self.overseer.run"): "its watch and the training outlive their slips",
    ("sfnode.node.running_node", "trainer.run"): _TRAINING,
    ("sfnode.node.model_fetcher", "self._watch"): _TRAINING,
    ("sfnode.node.piece_fetcher", "self._use_stream"): "RefusedError alone leaves a download: `NeighbourFiles.asking`",
    ("sfnode.network.network", "self._serve"): _LIFE,
    ("sfnode.network.discovery.mdns", "self._ask"): "discovery begins anew: `Network._serve`",
    ("sfnode.network.discovery.mdns", "self._listen"): "discovery begins anew: `Network._serve`",
    ("sfnode.network.discovery.dialler", "self._dial_and_run"): "contains the session itself",
    ("sfnode.network.sessions.session", "self._write_all"): _SESSION,
    ("sfnode.network.sessions.session", "self.heartbeat.run"): _SESSION,
    ("sfnode.network.transport.libp2p_patches", "drop_connection"): _LIFE,
    ("sfnode.network.transport.host", "listener.close"): _LIFE,
    ("sfnode.network.transport.host", "serve"): _LIFE,
    ("sfnode.metrics", "server.answer"): "contains the connection itself",
    ("sfnode.web.server", "self._tell"): "it ends a browser's connection: `_Connections._serve`",
    ("sfnode.web.server", "viewers.run"): _PAGE,
    ("sfnode.web.server", "self._close_when_cancelled"): _PAGE,
    ("sfnode.web.server", "self._serve"): "contains the connection itself",
    ("sfnode.cli.joining.node_run", "_stop_on_signal"): "raises OperatorError alone: nobody reads the output any more",
    ("sfnode.cli.joining.node_run", "life.stop_on_request"): "contains each look itself",
    ("sfnode.cli.joining.node_run", "daemon.run"): "the node itself: ENDINGS alone leave it",
}


def tasks_have_boundaries(module: Module) -> Iterator[str]:
    """Each task that is started in a node's rooms has a boundary, or its place in TASKS."""
    if not module.is_in(*ROOMS):
        return
    for started, node in _started(module):
        if started.rpartition(".")[2] not in BOUNDARIES and (module.name, started) not in TASKS:
            yield module.at(node, f"{started} is started without a boundary, and is not listed with one")


def started_tasks(modules: tuple[Module, ...]) -> set[tuple[str, str]]:
    """Everything that is started in a node's rooms, to hold TASKS against."""
    return {(module.name, started) for module in modules if module.is_in(*ROOMS) for started, _ in _started(module)}


def _started(module: Module) -> Iterator[tuple[str, ast.Call]]:
    calls = (node for function in functions(module) for node in own_nodes(function) if isinstance(node, ast.Call))
    for call in calls:
        is_start = isinstance(call.func, ast.Attribute) and call.func.attr in STARTERS and bool(call.args)
        if is_start and (started := _name(call.args[0])):
            yield started, call


def _name(task: ast.expr) -> str:
    """What is started: of `partial(f, ...)` with a boundary, that boundary; of a made object, its method."""
    if isinstance(task, ast.Call) and dotted(task.func) == "partial":
        inner = dotted(task.args[0])
        return inner if inner.rpartition(".")[2] in BOUNDARIES else "partial"
    return dotted(task)
