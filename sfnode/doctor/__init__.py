"""Doors: `Examination`, `foresee_memory`. Check what a node needs on this machine, and give advice.

The checks start no node.
"""

from typing import TYPE_CHECKING

from sfnode import lazy_face

if TYPE_CHECKING:
    from sfnode.doctor.diagnosis import Examination as Examination
    from sfnode.doctor.findings import Finding as Finding, Verdict as Verdict, summary_of as summary_of
    from sfnode.doctor.memory_plan import (
        MemoryPlan as MemoryPlan,
        foresee_memory as foresee_memory,
        plan_memory as plan_memory,
    )
    from sfnode.doctor.question import Question as Question
else:
    __getattr__, __dir__ = lazy_face(__name__, __file__)
