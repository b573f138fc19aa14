"""Every attack by its name."""

from __future__ import annotations

from typing import Final

from tests.attacks.cheap_frames import cheap_frames
from tests.attacks.held_places import held_places
from tests.attacks.many_connections import many_connections
from tests.attacks.outcome import Attack

ATTACKS: Final[dict[str, Attack]] = {
    attack.__name__: attack for attack in (held_places, many_connections, cheap_frames)
}
