"""Door: `Node`. A node's whole behaviour as a pure machine: events in, effects out."""

from protocol.node import statistics as statistics
from protocol.node.end_of_run import Ending as Ending
from protocol.node.node import Node as Node
from protocol.node.node_config import NodeConfig as NodeConfig, SnapshotUse as SnapshotUse
from protocol.node.statistics import NodeStatistics as NodeStatistics, RunProgress as RunProgress
from protocol.node.step_clock import StepClock as StepClock
