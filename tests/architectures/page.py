"""The table of docs/models.md: what stands between the marks is written here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tests.architectures.verdict import Verdict

_BEGIN, _END = "<!-- measured: architectures -->\n", "<!-- end -->"
_TITLES: Final = {
    "dense": "A dense core",
    "drawn": "Drawn directions",
    "refused": "Refused",
    "wrong": "Wrong",
}


def fill(page: str, found: Mapping[str, Verdict], release: str) -> str:
    """``page`` with the table renewed; ValueError where it has no place for it."""
    pattern = re.compile(f"({_BEGIN}).*?({_END})", re.DOTALL)
    filled, count = pattern.subn(lambda match: match[1] + "\n".join(_lines(found, release)) + "\n" + match[2], page)
    if count != 1:
        raise ValueError(f"the page has {count} places for the table of architectures")
    return filled


def summary(found: Mapping[str, Verdict]) -> str:
    """How many of each kind."""
    kinds = [verdict.kind for verdict in found.values()]
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in _TITLES if kind in kinds)


def _lines(found: Mapping[str, Verdict], release: str) -> list[str]:
    of_kind = {kind: {name: each for name, each in found.items() if each.kind == kind} for kind in _TITLES}
    dense, drawn, refused, wrong = of_kind.values()
    lines = [
        f"Of {len(found)} architectures of transformers {release}, {len(dense)} have a dense core, {len(drawn)} draw "
        f"directions, and {len(refused)} are refused.",
    ]
    if dense:
        lines += ["", "| a dense core | in the layers | direct path | label words | texts |", "|---|---|---|---|---|"]
        lines += [
            f"| {name} | {', '.join(each.layers)} | {each.direct:.2f} | {each.whole[0]:.2f} | {each.whole[1]:.2f} |"
            for name, each in sorted(dense.items())
        ]
    for title, group in (("drawn directions", drawn), ("refused", refused), ("wrong", wrong)):
        if group:
            lines += ["", f"| {title} | why |", "|---|---|"]
            lines += [f"| {', '.join(names)} | {reason} |" for reason, names in sorted(_by_reason(group).items())]
    return lines


def _by_reason(group: Mapping[str, Verdict]) -> dict[str, list[str]]:
    """Names that share a reason, but for the name of the class in it."""
    found: dict[str, list[str]] = {}
    for name, verdict in sorted(group.items()):
        reason = re.sub(r"\w+(ForCausalLM|LMHeadModel|WithLMHead\w*|Decoder)\b", "the model", verdict.reason)
        found.setdefault(" ".join(reason.split()).replace("|", "/"), []).append(name)
    return found
