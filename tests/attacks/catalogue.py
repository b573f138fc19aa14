"""Every attack by its name."""

from __future__ import annotations

from typing import Final

from tests.attacks.cheap_keys import cheap_keys
from tests.attacks.outcome import Attack
from tests.attacks.planted_files import locked_folder, planted_files
from tests.attacks.wrong_run import wrong_run

ATTACKS: Final[dict[str, Attack]] = {
    attack.__name__: attack for attack in (cheap_keys, locked_folder, planted_files, wrong_run)
}
