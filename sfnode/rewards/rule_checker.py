"""Say how good an answer is by a run's rule (SPEC 1.6); a node's own command does so in `private_reward`.

Rule and answer may come from strangers: all work is bounded. Of JSON Schema there is the small part that SPEC 1.6 has:
no `pattern`, no `$ref`.
"""

import re
from collections.abc import Iterable, Mapping

import re2

from protocol.errors import OperatorError
from protocol.run import bounded_json, reward as rules
from protocol.schema import Malformed, has_half_pair

# The largest program that this allows takes RE2 some 0.4 s on the longest answer, where it gives up its automaton.
_PATTERN_MEMORY_BYTES = 1 << 17
_BYTES_MAX = rules.ANSWER_BYTES_MAX
_WHITE = bounded_json.WHITE
_WORD = re.compile(f"[^{_WHITE}]+")
_TYPES: dict[type, tuple[rules.JsonType, ...]] = {
    type(None): (rules.JsonType.NULL,),
    bool: (rules.JsonType.BOOLEAN,),
    str: (rules.JsonType.STRING,),
    int: (rules.JsonType.NUMBER, rules.JsonType.INTEGER),
    float: (rules.JsonType.NUMBER,),
    list: (rules.JsonType.ARRAY,),
    dict: (rules.JsonType.OBJECT,),
}
_AROUND = ("it {} so", "{} so", "It {}", "It is {}.")  # words around a right answer, which a rule may take as well
_EXAMPLE_VALUE = "1"  # stands for a row's value when a pattern is tried before there is a row


class Checker:
    """Rewards answers by a rule. OperatorError: a pattern of the rule is not one of RE2, or too large."""

    def __init__(self, rule: rules.RewardRule) -> None:
        self._rule = rule
        self._options = re2.Options()
        self._options.log_errors = False
        self._options.max_mem = _PATTERN_MEMORY_BYTES
        for pattern in _patterns_of(rule.check):
            text = pattern.filled(lambda _: _EXAMPLE_VALUE)
            try:
                re2.compile(text, self._options)
            except re2.error as error:
                said = error.args[0].decode("utf-8", "replace") if isinstance(error.args[0], bytes) else error.args[0]
                raise OperatorError(
                    f"the check's pattern {text[:80]!r}: {said}. It is RE2 syntax, without look-around and backward "
                    "references; write braces of the pattern twice, such as [0-9]{{2,3}}"
                ) from None

    def reward(self, answer: str, has_ended: bool, row: Mapping[str, object]) -> float:
        """Return the answer's reward, 0 to 1. OperatorError: the row lacks a field of the rule.

        ``has_ended``: whether the model ended the answer by itself, within the rule's tokens.
        """
        values = {name: _value(row, name) for name in sorted(set(self._rule.fields))}
        data = answer.encode("utf-8", "replace")
        text = data[:_BYTES_MAX].decode("utf-8", "ignore").strip(_WHITE)
        return self._given(self._rule.check, text, has_ended and len(data) <= _BYTES_MAX, values)

    def right_answer(self, rows: Iterable[Mapping[str, object]]) -> str:
        """Return a text of the rule, or a field of it, that gets the whole reward in all rows, as a template; else "".

        A rule that is as content with more words around the text leaves the form of an answer to the model: no such
        text. ``rows``: the fields of each. OperatorError: a row lacks one.
        """
        found, has_rows = list(dict.fromkeys(_texts_of(self._rule.check))), False
        for row in rows:
            has_rows, values = True, {name: _value(row, name) for name in self._rule.fields}
            texts = [text.filled(values.__getitem__) for text in found]
            found = [
                each
                for each, text in zip(found, texts, strict=True)
                if self.reward(text, True, row) >= 1.0
                and all(self.reward(around.format(text), True, row) < 1.0 for around in _AROUND)
            ]
            if not found:
                break
        if not found or not has_rows:
            return ""
        literals = tuple(literal.replace("{", "{{").replace("}", "}}") for literal in found[0].literals)
        return rules.RowText(literals, found[0].fields).filled("{{{}}}".format)

    def _given(self, check: rules.Check, answer: str, has_ended: bool, values: Mapping[str, str]) -> float:
        match check:
            case rules.SumCheck(terms=terms):
                whole = sum(weight for weight, _ in terms)
                parts = sum(weight * self._given(term, answer, has_ended, values) for weight, term in terms)
                return min(1.0, parts / whole)
            case rules.TextCheck(match=rules.TextMatch.CONTAINS, text=text):
                wanted = text.filled(values.__getitem__)
                return float(wanted != "" and wanted in answer)
            case _ if not has_ended:
                return 0.0
            case rules.RangeCheck():
                return float(_is_within(check, answer, values))
            case rules.JsonSchema():
                return float(fits(answer, check, values))
            case rules.TextCheck(match=rules.TextMatch.EXACT, text=text):
                return float(answer == text.filled(values.__getitem__).strip(_WHITE))
            case rules.TextCheck(text=text):
                return float(self._matches(text, answer, values))

    def _matches(self, pattern: rules.RowText, answer: str, values: Mapping[str, str]) -> bool:
        text = pattern.filled(lambda name: re2.escape(values[name]))
        try:
            compiled = re2.compile(text, self._options)
        except re2.error:
            return False  # a row's value made it too large
        return compiled.fullmatch(answer) is not None


def _patterns_of(check: rules.Check) -> list[rules.RowText]:
    if isinstance(check, rules.SumCheck):
        return [pattern for _, term in check.terms for pattern in _patterns_of(term)]
    return [check.text] if isinstance(check, rules.TextCheck) and check.match is rules.TextMatch.REGEX else []


def _texts_of(check: rules.Check) -> Iterable[rules.RowText]:
    """Yield the texts of a check that an answer may be, whole texts before their fields."""
    match check:
        case rules.SumCheck(terms=terms):
            for _, term in terms:
                yield from _texts_of(term)
        case rules.TextCheck(match=match, text=text):
            yield from () if match is rules.TextMatch.REGEX else (text,)
            yield from (rules.RowText(("", ""), (name,)) for name in text.fields)
        case rules.RangeCheck(measure=rules.Measure.NUMBER, low=rules.RowText() as low, high=high) if low == high:
            yield low
        case _:
            pass


def _value(row: Mapping[str, object], name: str) -> str:
    value = row.get(name)
    if isinstance(value, str) and not has_half_pair(value):
        return value
    if type(value) is int and abs(value) <= bounded_json.EXACT_INTEGER_MAX:
        return str(value)
    fault = "is missing" if name not in row else f"is {repr(value)[:80]}, and neither a text nor a whole number"
    raise OperatorError(f"field {name!r} of the row {fault}; the run's reward compares answers with it")


def _is_within(check: rules.RangeCheck, answer: str, values: Mapping[str, str]) -> bool:
    low, high = (
        bounded_json.decimal_of(end.filled(values.__getitem__).strip(_WHITE)) if isinstance(end, rules.RowText) else end
        for end in (check.low, check.high)
    )
    match check.measure:
        case rules.Measure.NUMBER:
            value: float | None = bounded_json.decimal_of(answer)
        case rules.Measure.WORDS:
            value = len(_WORD.findall(answer))
        case rules.Measure.CHARACTERS:
            value = len(answer)
    return value is not None and low is not None and high is not None and low <= value <= high


def fits(answer: str, schema: rules.JsonSchema, values: Mapping[str, str]) -> bool:
    """Return whether the answer is JSON of the schema's form. ``values``: of the row's fields."""
    try:
        value = bounded_json.read_json(answer, "answer")
    except Malformed:
        return False
    return _fits(value, schema, values)


def _fits(value: object, schema: rules.JsonSchema, values: Mapping[str, str]) -> bool:
    """Compare each value once with each schema that applies to it; schemas nest a few levels, so recursion ends."""
    is_whole = isinstance(value, float) and value.is_integer()  # 3.0 is an integer, too
    if schema.type is not None and schema.type not in _TYPES[int if is_whole else type(value)]:
        return False
    if schema.allowed is not None and not _is_among(value, schema.allowed, values):
        return False
    if isinstance(value, str):
        return _within(len(value), schema.text)
    if isinstance(value, list):
        is_counted = _within(len(value), schema.items_count)
        return is_counted and (schema.items is None or all(_fits(each, schema.items, values) for each in value))
    if isinstance(value, dict):
        return _object_fits(value, schema, values)
    return isinstance(value, bool) or not isinstance(value, int | float) or _within(value, schema.value)


def _object_fits(value: Mapping[str, object], schema: rules.JsonSchema, values: Mapping[str, str]) -> bool:
    if not schema.is_open and any(name not in schema.properties for name in value):
        return False
    if any(name not in value for name in schema.required):
        return False
    known = ((each, schema.properties[name]) for name, each in value.items() if name in schema.properties)
    return all(_fits(each, wanted, values) for each, wanted in known)


def _is_among(value: object, allowed: tuple[rules.Constant, ...], values: Mapping[str, str]) -> bool:
    """Return whether a value is one of the constants; true is not 1, although Python says so."""
    filled = (each.filled(values.__getitem__) if isinstance(each, rules.RowText) else each for each in allowed)
    return any(isinstance(value, bool) is isinstance(each, bool) and value == each for each in filled)


def _within(size: float, ends: tuple[float, float]) -> bool:
    return ends[0] <= size <= ends[1]
