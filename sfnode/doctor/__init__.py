"""Doors: `Examination`, `foresee_memory`. Check what a node needs on this machine, and give advice.

The checks start no node.
"""

from typing import TYPE_CHECKING

from sfnode.lazy_faces import lazy_face

if TYPE_CHECKING:
    from sfnode.doctor.all_checks import Examination
    from sfnode.doctor.findings import Finding, Verdict, summary_of
    from sfnode.doctor.memory_plan import MemoryPlan, foresee_memory, plan_memory
else:
    __getattr__, __dir__ = lazy_face(__name__, __file__)
