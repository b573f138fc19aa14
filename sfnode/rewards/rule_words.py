"""Say a rule of rewards in words, for the owner who made it and those who join. Texts stay as they are written."""

from protocol.run import Check, JsonSchema, Measure, RangeCheck, RewardRule, RowText, SumCheck, TextMatch

_SHOWN_MAX = 60
_MATCHES = {TextMatch.EXACT: "is {}", TextMatch.CONTAINS: "contains {}", TextMatch.REGEX: "matches the pattern {}"}


def rule_in_words(rule: RewardRule) -> str:
    """Return one sentence: what the rule rewards, and how many answers of which length are sampled."""
    said = f"1 if the answer {_said(rule.check)}, else 0"
    if isinstance(rule.check, SumCheck):
        said = f"the answer {_said(rule.check)}"
    return f"{said}; {rule.samples} answers of at most {rule.tokens:,} tokens to each prompt"


def _said(check: Check) -> str:
    match check:
        case SumCheck():
            whole = sum(weight for weight, _ in check.terms)
            parts = [f"{weight / whole:.3g} if it {_said(term)}" for weight, term in check.terms]
            return "gets " + " + ".join(parts)
        case RangeCheck():
            return _range_said(check)
        case JsonSchema():
            return f"is JSON: {_schema_said(check)}"
        case _:
            return _MATCHES[check.match].format(_shown(check.text))


def _range_said(check: RangeCheck) -> str:
    low, high = (_shown(end) if isinstance(end, RowText) else f"{end:,.15g}" for end in (check.low, check.high))
    ends = low if low == high else f"{low} to {high}"
    if check.measure is Measure.NUMBER:
        return f"is the number {ends}" if low == high else f"is a number of {ends}"
    return f"has {ends} {check.measure.removesuffix('s') if ends == '1' else check.measure}"


def _schema_said(schema: JsonSchema) -> str:
    kind = "a constant" if schema.allowed is not None else "anything" if schema.type is None else str(schema.type)
    if schema.items is not None:
        kind += f" of {_schema_said(schema.items)}"
    names = [f"{name} ({_schema_said(each)})" for name, each in schema.properties.items()]
    names += [name for name in schema.required if name not in schema.properties]
    whole = f"{kind} with {', '.join(names)}" if names else kind
    return whole if len(whole) <= _SHOWN_MAX else f"{whole[: _SHOWN_MAX - 3]}..."


def _shown(text: RowText) -> str:
    """Return a text in quotes, with its fields in braces."""
    whole = repr(text.filled(lambda name: f"{{{name}}}")).replace("\\\\", "\\")  # a pattern as it was written
    return whole if len(whole) <= _SHOWN_MAX else f"{whole[: _SHOWN_MAX - 3]}..."
