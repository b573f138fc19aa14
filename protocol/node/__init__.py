"""Door: `Node`. A node's whole behaviour as a pure machine: events in, effects out."""

from protocol.node.node import Node
from protocol.node.node_config import NodeConfig, SnapshotUse
from protocol.node.step_clock import StepClock

__all__ = ["Node", "NodeConfig", "SnapshotUse", "StepClock"]
