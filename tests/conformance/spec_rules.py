"""The numbered rules of the specification that end in a verdict, read from its text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests import REPOSITORY

SPEC = (REPOSITORY / "protocol" / "SPEC.md").read_text("utf-8")
_SECTION = re.compile(r"^### ([1-9]\.\d+) ")
_ITEM = re.compile(r"^(\d+)\. ")
_VERDICT = re.compile(r"\[(?:REJECT|IGNORE)\] ((?:`[A-Z_]+`(?:, )?)+)")


def sections(text: str = SPEC) -> set[str]:
    """Numbers of all sections, such as 6.2."""
    return {found[1] for line in text.splitlines() if (found := _SECTION.match(line))}


def items(text: str = SPEC) -> set[str]:
    """Numbers of all items of the lists in these sections, such as 6.2.4."""
    return {rule for rule, _ in _items(text)}


def verdict_rules(text: str = SPEC) -> set[str]:
    """Each rule with each reason that it gives: "6.2.2 STEP_RANGE" and "6.2.2 STEP_ALIGNMENT"."""
    return {f"{rule} {reason}" for rule, reasons in _items(text) for reason in reasons}


def _items(text: str) -> Iterator[tuple[str, set[str]]]:
    """(number, reasons). What a section says before its list holds for every item of it."""
    for part in re.split(r"^(?=##)", text, flags=re.MULTILINE):
        section = _SECTION.match(part)
        if section is None:
            continue
        for_all, *listed = re.split(r"^(?=\d+\. )", part, flags=re.MULTILINE)
        for body in listed:
            number = _ITEM.match(body)
            assert number is not None
            own = re.split(r"\n(?! {3})", body)[0]  # an item's further lines are indented
            yield f"{section[1]}.{number[1]}", _reasons(for_all) | _reasons(own)


def _reasons(text: str) -> set[str]:
    return {reason for found in _VERDICT.finditer(text) for reason in re.findall(r"`([A-Z_]+)`", found[1])}
