"""Every attack by its name."""

from __future__ import annotations

from typing import Final

from tests.attacks.late_author import late_author
from tests.attacks.outcome import Attack

ATTACKS: Final[dict[str, Attack]] = {
    "late_author": late_author,
}
