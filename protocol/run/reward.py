"""The rule by which a run rewards answers: a fixed grammar of checks, read from text (SPEC 1.6). Nothing is run here.

Check what an answer gets: `sfnode.rewards`.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

from protocol.run import bounded_json
from protocol.schema import Malformed, has_half_pair

RULE_CHARACTERS_MAX = 4_096  # the bound of `TaskSpec.completion`
SAMPLES_MIN = 2  # the mean of the others says what to expect of one
SAMPLES_MAX = 64
ANSWER_TOKENS_MAX = 1_024
ANSWER_BYTES_MAX = 16_384  # more of an answer is not looked at
CHECK_DEPTH_MAX = 8  # of checks in sums and schemas in schemas, so that recursion ends
TERMS_MAX = 16  # of all sums of a rule
ENUM_MAX = 64  # an answer can hold thousands of values to compare with each
TERM_WEIGHT_MAX = 1_000_000  # a sum of weights stays finite and exact enough
NOT_FIELDS = ("label", "choices", "choice")  # SPEC 5.5: words of other kinds of task
# As `str.isidentifier`, but of no version of Unicode: a manifest is valid under each Python, or under none
FIELD_NAME = re.compile("[A-Za-z_\u0080-\U0010ffff][0-9A-Za-z_\u0080-\U0010ffff]*")
_PART = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[^{}]+")
_BRACES_HELP = "a field is {name}, and a brace itself is written twice, in patterns too: a{{2,3}}"


class TextMatch(StrEnum):
    """How an answer compares with a text."""

    EXACT = "exact"
    CONTAINS = "contains"
    REGEX = "regex"


class Measure(StrEnum):
    """What of an answer lies in a range: its value, or a count."""

    NUMBER = "number"
    WORDS = "words"
    CHARACTERS = "characters"


class JsonType(StrEnum):
    """A type of JSON Schema."""

    OBJECT = "object"
    ARRAY = "array"
    STRING = "string"
    NUMBER = "number"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    NULL = "null"


@dataclass(frozen=True, slots=True)
class RowText:
    """A text with places for fields of a row: ``literals[0]``, field 0, ``literals[1]``, ..., the last literal."""

    literals: tuple[str, ...]
    fields: tuple[str, ...]

    def filled(self, value_of: Callable[[str], str]) -> str:
        """Return the text with ``value_of(name)`` in the place of each field."""
        values = (*map(value_of, self.fields), "")
        return "".join(literal + value for literal, value in zip(self.literals, values, strict=True))


@dataclass(frozen=True, slots=True)
class TextCheck:
    """Demands that the answer is, contains or matches a text."""

    match: TextMatch
    text: RowText


@dataclass(frozen=True, slots=True)
class RangeCheck:
    """Demands that the answer's value, words or characters lie in a range; both bounds are inclusive."""

    measure: Measure
    low: float | RowText
    high: float | RowText


Constant = RowText | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSchema:
    """Demands that the answer is JSON of this form; what is None is not asked for.

    Attributes:
        allowed: the constants of ``enum`` or ``const``.
        value, text, items_count: least and most of a number, of a text's code points, of an array's items.
    """

    type: JsonType | None
    properties: Mapping[str, "JsonSchema"]
    required: tuple[str, ...]
    is_open: bool
    items: "JsonSchema | None"
    allowed: tuple[Constant, ...] | None
    value: tuple[float, float]
    text: tuple[float, float]
    items_count: tuple[float, float]


@dataclass(frozen=True, slots=True)
class SumCheck:
    """Gives the weighted mean of what other checks give."""

    terms: tuple[tuple[float, "Check"], ...]


Check = TextCheck | RangeCheck | JsonSchema | SumCheck


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardRule:
    """Says how good an answer is, and how answers are sampled.

    Attributes:
        samples: answers to each prompt.
        tokens: longest answer; one that has not ended by then fails every check but ``contains``.
        fields: of a row, each as often as the rule names it.
        answer: a right answer to each row, which is learnt in place of answers that are drawn; None: they are drawn.
    """

    check: Check
    samples: int
    tokens: int
    fields: tuple[str, ...]
    answer: RowText | None = None

    @property
    def rows_each(self) -> int:
        """Return how many rows of a message come from one prompt."""
        return self.samples if self.answer is None else 1


def parse_reward(text: str) -> RewardRule:
    """Return the rule in a JSON document (SPEC 1.6). Raises Malformed; the error names the place."""
    if len(text) > RULE_CHARACTERS_MAX:
        raise Malformed(f"reward: {len(text):,} characters are more than {RULE_CHARACTERS_MAX:,}")
    data = bounded_json.read_json(text, "reward")
    if has_half_pair(json.dumps(data, ensure_ascii=False)):
        raise Malformed("reward: half of a surrogate pair is not a character")
    members = _members(data, ("check", "samples", "tokens", "answer"), "reward")
    if missing := [name for name in ("check", "samples", "tokens") if name not in members]:
        raise Malformed(f"reward: {missing[0]!r} is missing")
    grammar = _Grammar()
    return RewardRule(
        check=grammar.check(members["check"], "reward.check", 1),
        answer=grammar.text(members["answer"], "reward.answer") if "answer" in members else None,
        samples=_whole(members["samples"], SAMPLES_MIN, SAMPLES_MAX, "reward.samples"),
        tokens=_whole(members["tokens"], 1, ANSWER_TOKENS_MAX, "reward.tokens"),
        fields=tuple(grammar.fields),
    )


class _Grammar:
    """Reads checks from plain data; collects their fields and counts the terms of sums."""

    def __init__(self) -> None:
        self.fields: list[str] = []
        self._terms = 0

    def check(self, data: object, where: str, depth: int) -> Check:
        if depth > CHECK_DEPTH_MAX:
            raise Malformed(f"{where}: checks and schemas nest deeper than {CHECK_DEPTH_MAX}")
        members = _members(data, (*TextMatch, *Measure, "json", "sum"), where)
        if len(members) != 1:
            raise Malformed(f"{where}: {len(members)} checks where one is expected; a sum puts several together")
        ((name, value),) = members.items()
        place = f"{where}.{name}"
        if name == "json":
            return self._schema(value, place, depth)
        if name == "sum":
            return self._sum(value, place, depth)
        if name in list(TextMatch):
            return TextCheck(TextMatch(name), self.text(value, place))
        return self._range(Measure(name), value, place)

    def _sum(self, data: object, where: str, depth: int) -> SumCheck:
        terms = []
        for index, entry in enumerate(_list(data, 1, TERMS_MAX, where)):
            place = f"{where}[{index}]"
            weight, check = _list(entry, 2, 2, place)
            self._terms += 1
            if self._terms > TERMS_MAX:
                raise Malformed(f"{place}: the rule's sums have more than {TERMS_MAX} terms together")
            if not 0 < (share := _number(weight, f"{place}[0]")) <= TERM_WEIGHT_MAX:
                raise Malformed(f"{place}[0]: a weight is above 0 and at most {TERM_WEIGHT_MAX:,}")
            terms.append((float(share), self.check(check, f"{place}[1]", depth + 1)))
        return SumCheck(tuple(terms))

    def _range(self, measure: Measure, data: object, where: str) -> RangeCheck:
        if measure is Measure.NUMBER and isinstance(data, str):
            value = self._bound(data, where)
            return RangeCheck(measure, value, value)
        ends = _list(data, 2, 2, where)
        if measure is Measure.NUMBER:
            low, high = (self._bound(end, f"{where}[{index}]") for index, end in enumerate(ends))
        else:
            low, high = (_whole(end, 0, ANSWER_BYTES_MAX, f"{where}[{index}]") for index, end in enumerate(ends))
        if not isinstance(low, RowText) and not isinstance(high, RowText) and low > high:
            raise Malformed(f"{where}: nothing lies in {low:g} ... {high:g}")
        return RangeCheck(measure, low, high)

    def _bound(self, data: object, where: str) -> float | RowText:
        """Return a bound of a number: fixed, or a text with a field."""
        if not isinstance(data, str):
            return _number(data, where)
        text = self.text(data, where)
        value = None if text.fields else bounded_json.decimal_of(text.literals[0])
        if not text.fields and value is None:
            raise Malformed(f"{where}: {data[:64]!r} is neither a decimal number nor a text with a field")
        return text if value is None else value

    def _schema(self, data: object, where: str, depth: int) -> JsonSchema:
        if depth > CHECK_DEPTH_MAX:
            raise Malformed(f"{where}: checks and schemas nest deeper than {CHECK_DEPTH_MAX}")
        members = _members(data, _SCHEMA_KEYS, where)
        properties = _dict(members.get("properties", {}), f"{where}.properties")
        named = {
            name: self._schema(schema, f"{where}.properties[{name[:32]!r}]", depth + 1)
            for name, schema in properties.items()
        }
        required = _list(members.get("required", []), 0, RULE_CHARACTERS_MAX, f"{where}.required")
        if not all(isinstance(name, str) for name in required):
            raise Malformed(f"{where}.required: a list of texts is expected")
        is_open = members.get("additionalProperties", True)
        if "type" in members and members["type"] not in list(JsonType):
            raise Malformed(f"{where}.type: one of {', '.join(JsonType)} is expected")
        if not isinstance(is_open, bool):
            raise Malformed(f"{where}.additionalProperties: true or false is expected")
        return JsonSchema(
            type=JsonType(str(members["type"])) if "type" in members else None,
            properties=named,
            required=tuple(cast(list[str], required)),
            is_open=is_open,
            items=self._schema(members["items"], f"{where}.items", depth + 1) if "items" in members else None,
            allowed=self._allowed(members, where),
            value=_ends(members, "minimum", "maximum", where),
            text=_ends(members, "minLength", "maxLength", where),
            items_count=_ends(members, "minItems", "maxItems", where),
        )

    def _allowed(self, members: Mapping[str, object], where: str) -> tuple[Constant, ...] | None:
        if "const" in members and "enum" in members:
            raise Malformed(f"{where}: const and enum exclude each other")
        if "const" in members:
            return (self._constant(members["const"], f"{where}.const"),)
        if "enum" not in members:
            return None
        entries = _list(members["enum"], 1, ENUM_MAX, f"{where}.enum")
        return tuple(self._constant(entry, f"{where}.enum[{index}]") for index, entry in enumerate(entries))

    def _constant(self, data: object, where: str) -> Constant:
        if data is None or isinstance(data, bool):
            return data
        if isinstance(data, str):
            return self.text(data, where)
        if isinstance(data, int | float):
            return data
        raise Malformed(f"{where}: a text, a number, true, false or null is expected")

    def text(self, data: object, where: str) -> RowText:
        """Return a text with its fields. `_PART` takes doubled braces first, as Python's templates do."""
        if not isinstance(data, str):
            raise Malformed(f"{where}: a text is expected")
        literals, names, end = [""], [], 0
        for part in _PART.finditer(data):
            if part.start() != end:
                break
            end = part.end()
            if part[0] in ("{{", "}}"):
                literals[-1] += part[0][0]
            elif part[0][0] != "{":
                literals[-1] += part[0]
            elif not FIELD_NAME.fullmatch(part[1]) or part[1] in NOT_FIELDS:
                raise Malformed(f"{where}: {part[0][:64]} is not a field of the data; {_BRACES_HELP}")
            else:
                names.append(part[1])
                literals.append("")
        if end != len(data):
            raise Malformed(f"{where}: a single brace at character {end + 1}; {_BRACES_HELP}")
        self.fields += names
        return RowText(tuple(literals), tuple(names))


_SCHEMA_KEYS = (
    "type properties required additionalProperties items enum const minimum maximum "
    "minLength maxLength minItems maxItems"
).split()


def _ends(members: Mapping[str, object], least: str, most: str, where: str) -> tuple[float, float]:
    """Return the bounds that two keywords of a schema give; infinite where there are none."""
    ends = {least: -math.inf, most: math.inf}
    for name in (least, most):
        if name in members and name in ("minimum", "maximum"):
            ends[name] = _number(members[name], f"{where}.{name}")
        elif name in members:
            ends[name] = _whole(members[name], 0, ANSWER_BYTES_MAX, f"{where}.{name}")
    if ends[least] > ends[most]:
        raise Malformed(f"{where}: {least} is above {most}")
    return ends[least], ends[most]


def _dict(data: object, where: str) -> dict[str, object]:
    if not isinstance(data, dict):
        raise Malformed(f"{where}: an object is expected")
    return data


def _members(data: object, names: Sequence[str], where: str) -> dict[str, object]:
    members = _dict(data, where)
    if unknown := [name for name in members if name not in names]:
        raise Malformed(f"{where}: {unknown[0][:64]!r} is unknown; known are {', '.join(names)}")
    return members


def _list(data: object, least: int, most: int, where: str) -> list[object]:
    if not isinstance(data, list) or not least <= len(data) <= most:
        count = f"{least}" if least == most else f"{least} to {most}"
        raise Malformed(f"{where}: a list of {count} is expected")
    return data


def _number(data: object, where: str) -> float:
    if isinstance(data, bool) or not isinstance(data, int | float):
        raise Malformed(f"{where}: a number is expected")
    return data


def _whole(data: object, least: int, most: int, where: str) -> int:
    if type(data) is not int or not least <= data <= most:
        raise Malformed(f"{where}: a whole number of {least:,} ... {most:,} is expected")
    return data
