"""Each attack in its short form. ``make attacks`` runs the long one and prints the table.

They wait most of the time. Each is a group of its own, so that any process of the tests may take the next one.
"""

from __future__ import annotations

import pytest

from tests.attacks.catalogue import ATTACKS


@pytest.mark.process
@pytest.mark.parametrize("name", ATTACKS)
def test_attack__short_form__does_no_harm(name: str) -> None:
    outcome = ATTACKS[name](True)

    assert outcome.is_held, outcome
