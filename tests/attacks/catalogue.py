"""Every attack by its name."""

from __future__ import annotations

from typing import Final

from tests.attacks.budgets import budgets
from tests.attacks.cheap_frames import cheap_frames
from tests.attacks.cheap_keys import cheap_keys
from tests.attacks.costly_questions import costly_questions
from tests.attacks.endless_model import endless_model
from tests.attacks.false_digest import false_digest
from tests.attacks.greedy_manifest import greedy_manifest
from tests.attacks.held_pieces import held_pieces
from tests.attacks.held_places import held_places
from tests.attacks.late_author import late_author
from tests.attacks.made_up_attestations import made_up_attestations
from tests.attacks.many_connections import many_connections
from tests.attacks.outcome import Attack
from tests.attacks.planted_files import locked_folder, planted_files
from tests.attacks.reflected_dials import reflected_dials
from tests.attacks.slow_basis import slow_basis
from tests.attacks.slow_pieces import slow_pieces
from tests.attacks.voids import voids
from tests.attacks.wrong_run import wrong_run

_ALL: Final = (
    budgets,
    cheap_frames,
    cheap_keys,
    costly_questions,
    endless_model,
    false_digest,
    greedy_manifest,
    held_pieces,
    held_places,
    late_author,
    locked_folder,
    made_up_attestations,
    many_connections,
    planted_files,
    reflected_dials,
    slow_basis,
    slow_pieces,
    voids,
    wrong_run,
)
ATTACKS: Final[dict[str, Attack]] = {attack.__name__: attack for attack in _ALL}
