"""What a mutant is."""

from __future__ import annotations

from dataclasses import dataclass

from tests.mutants.detectors import Detector
from tests.mutants.patch import Edit


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One deliberate bug.

    Attributes:
        name: short, in words joined by hyphens.
        breaks: what is wrong with it, for people.
        edits: the bug, as a diff of the product.
        detector: what must catch it.
    """

    name: str
    breaks: str
    edits: tuple[Edit, ...]
    detector: Detector
