"""Door: `Examination`. What works on this machine for a node, and what to do where it does not. Starts no node."""

from sfnode.doctor.diagnosis import Examination, Question, summary_of
from sfnode.doctor.findings import Finding, Verdict

__all__ = ["Examination", "Finding", "Question", "Verdict", "summary_of"]
