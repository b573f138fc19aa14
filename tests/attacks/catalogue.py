"""Every attack by its name."""

from __future__ import annotations

from typing import Final

from tests.attacks.outcome import Attack
from tests.attacks.voids import voids

ATTACKS: Final[dict[str, Attack]] = {"voids": voids}
