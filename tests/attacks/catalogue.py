"""Every attack by its name."""

from __future__ import annotations

from typing import Final

from tests.attacks.costly_questions import costly_questions
from tests.attacks.false_digest import false_digest
from tests.attacks.greedy_manifest import greedy_manifest
from tests.attacks.made_up_attestations import made_up_attestations
from tests.attacks.outcome import Attack

ATTACKS: Final[dict[str, Attack]] = {
    attack.__name__: attack for attack in (costly_questions, false_digest, greedy_manifest, made_up_attestations)
}
