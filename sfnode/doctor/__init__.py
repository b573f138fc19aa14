"""Doors: `Examination`, `foresee_memory`. Check what a node needs on this machine, and give advice.

The checks start no node.
"""

from sfnode.doctor.all_checks import Examination as Examination, Question as Question, summary_of as summary_of
from sfnode.doctor.findings import Finding as Finding, Verdict as Verdict
from sfnode.doctor.memory_plan import (
    MemoryPlan as MemoryPlan,
    foresee_memory as foresee_memory,
    plan_memory as plan_memory,
)
