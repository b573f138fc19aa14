"""Say how good an answer is by a run's rule (SPEC 1.6). Both may come from strangers: all work is bounded."""

import re
from collections.abc import Mapping

import re2

from protocol.errors import OperatorError
from protocol.run import (
    Check,
    JsonSchema,
    Measure,
    RangeCheck,
    RewardRule,
    RowText,
    SumCheck,
    TextCheck,
    TextMatch,
    bounded_json,
    reward,
)
from protocol.schema import has_half_pair
from sfnode.rewards.json_schema import fits

# The largest program that this allows takes RE2 some 0.4 s on the longest answer, where it gives up its automaton.
_PATTERN_MEMORY_BYTES = 1 << 17
_BYTES_MAX = reward.ANSWER_BYTES_MAX
_WHITE = " \t\n\r\f\v"
_WORD = re.compile(f"[^{_WHITE}]+")
_EXAMPLE_VALUE = "1"  # stands for a row's value when a pattern is tried before there is a row


class Checker:
    """Rewards answers by a rule. OperatorError: a pattern of the rule is not one of RE2, or too large."""

    def __init__(self, rule: RewardRule) -> None:
        self._rule = rule
        self._options = re2.Options()
        self._options.log_errors = False
        self._options.max_mem = _PATTERN_MEMORY_BYTES
        for pattern in _patterns_of(rule.check):
            self._try_pattern(pattern)

    def reward(self, answer: str, has_ended: bool, row: Mapping[str, object]) -> float:
        """Return the answer's reward, 0 to 1. OperatorError: the row lacks a field of the rule.

        ``has_ended``: whether the model ended the answer by itself, within the rule's tokens.
        """
        values = {name: _value(row, name) for name in sorted(self._rule.fields)}
        data = answer.encode("utf-8", "replace")
        text = data[:_BYTES_MAX].decode("utf-8", "ignore").strip(_WHITE)
        return self._given(self._rule.check, text, has_ended and len(data) <= _BYTES_MAX, values)

    def _given(self, check: Check, answer: str, has_ended: bool, values: Mapping[str, str]) -> float:
        if isinstance(check, SumCheck):
            whole = sum(weight for weight, _ in check.terms)
            parts = sum(weight * self._given(term, answer, has_ended, values) for weight, term in check.terms)
            return min(1.0, parts / whole)
        if isinstance(check, TextCheck) and check.match is TextMatch.CONTAINS:
            wanted = check.text.filled(values.__getitem__)
            return float(wanted != "" and wanted in answer)
        return float(has_ended and self._passes(check, answer, values))

    def _passes(self, check: TextCheck | RangeCheck | JsonSchema, answer: str, values: Mapping[str, str]) -> bool:
        """Return whether a whole answer passes a check that is neither a sum nor ``contains``."""
        if isinstance(check, RangeCheck):
            return _is_within(check, answer, values)
        if isinstance(check, JsonSchema):
            return fits(answer, check, values)
        if check.match is TextMatch.EXACT:
            return answer == check.text.filled(values.__getitem__).strip(_WHITE)
        return self._matches(check.text, answer, values)

    def _matches(self, pattern: RowText, answer: str, values: Mapping[str, str]) -> bool:
        text = pattern.filled(lambda name: re2.escape(values[name]))
        try:
            compiled = re2.compile(text, self._options)
        except re2.error:
            return False  # a row's value made it too large
        return compiled.fullmatch(answer) is not None

    def _try_pattern(self, pattern: RowText) -> None:
        text = pattern.filled(lambda _: _EXAMPLE_VALUE)
        try:
            re2.compile(text, self._options)
        except re2.error as error:
            said = error.args[0].decode("utf-8", "replace") if isinstance(error.args[0], bytes) else error.args[0]
            raise OperatorError(
                f"the check's pattern {text[:80]!r}: {said}. It is RE2 syntax, without look-around and backward "
                "references; write braces of the pattern twice, such as [0-9]{{2,3}}"
            ) from None


def _patterns_of(check: Check) -> list[RowText]:
    if isinstance(check, SumCheck):
        return [pattern for _, term in check.terms for pattern in _patterns_of(term)]
    return [check.text] if isinstance(check, TextCheck) and check.match is TextMatch.REGEX else []


def _value(row: Mapping[str, object], name: str) -> str:
    value = row.get(name)
    if isinstance(value, str) and not has_half_pair(value):
        return value
    if type(value) is int and abs(value) <= bounded_json.EXACT_INTEGER_MAX:
        return str(value)
    fault = "is missing" if name not in row else f"is {repr(value)[:80]}, and neither a text nor a whole number"
    raise OperatorError(f"field {name!r} of the row {fault}; the run's reward compares answers with it")


def _is_within(check: RangeCheck, answer: str, values: Mapping[str, str]) -> bool:
    low, high = (
        bounded_json.decimal_of(end.filled(values.__getitem__).strip(_WHITE)) if isinstance(end, RowText) else end
        for end in (check.low, check.high)
    )
    match check.measure:
        case Measure.NUMBER:
            value: float | None = bounded_json.decimal_of(answer)
        case Measure.WORDS:
            value = len(_WORD.findall(answer))
        case Measure.CHARACTERS:
            value = len(answer)
    return value is not None and low is not None and high is not None and low <= value <= high
