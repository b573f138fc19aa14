"""Doors: `Examination`, `foresee_memory`. Check what a node needs on this machine, and give advice.

The checks start no node.
"""

from sfnode.doctor.all_checks import Examination, Question, summary_of
from sfnode.doctor.findings import Finding, Verdict
from sfnode.doctor.memory_plan import MemoryPlan, foresee_memory, plan_memory
