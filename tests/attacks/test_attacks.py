"""Each attack in its short form. ``make attacks`` runs the long one and prints the table.

They wait most of the time, and together the longest of all files: a process of the tests takes them first.
"""

from __future__ import annotations

import pytest

from tests.attacks.catalogue import ATTACKS


@pytest.mark.process(is_long=True)
@pytest.mark.parametrize("name", ATTACKS)
def test_attack__short_form__does_no_harm(name: str) -> None:
    outcome = ATTACKS[name](True)

    assert outcome.is_held, outcome
