"""Door: `Node`. A node's whole behaviour as a pure machine: events in, effects out."""

from protocol.node.end_of_run import Ending
from protocol.node.node import Node
from protocol.node.node_config import NodeConfig, SnapshotUse
from protocol.node.statistics import NodeStatistics, RunProgress, node_statistics, own_updates, run_progress
from protocol.node.step_clock import StepClock

__all__ = [
    "Ending",
    "Node",
    "NodeConfig",
    "NodeStatistics",
    "RunProgress",
    "SnapshotUse",
    "StepClock",
    "node_statistics",
    "own_updates",
    "run_progress",
]
