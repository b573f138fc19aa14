"""Door: `Node`. A node's whole behaviour as a pure machine: events in, effects out."""

from protocol.node import statistics
from protocol.node.end_of_run import Ending
from protocol.node.node import Node
from protocol.node.node_config import NodeConfig, SnapshotUse
from protocol.node.statistics import NodeStatistics, RunProgress
from protocol.node.step_clock import StepClock
