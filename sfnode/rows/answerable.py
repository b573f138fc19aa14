"""Find rows to which a rule of rewards calls no answer right (SPEC 1.6): they teach nothing."""

from protocol.errors import OperatorError
from protocol.run import bounded_json, reward as rules
from sfnode.rows.row_templates import RowTexts


def check_answerable(rule: rules.RewardRule | None, texts: RowTexts, where: str) -> None:
    """Refuse a row to which the rule calls no answer right, as to one that has no number. OperatorError."""
    check = rule and rule.check
    while isinstance(check, rules.SumCheck) and len(check.terms) == 1:
        ((_, check),) = check.terms
    match check:
        case rules.RangeCheck(low=low, high=high):
            fault = _range_fault(low, high, texts)
        case rules.TextCheck(match=rules.TextMatch.EXACT | rules.TextMatch.CONTAINS as match, text=text):
            filled, most, fault = texts.filled(text), rules.ANSWER_BYTES_MAX, ""
            if (size := len(filled.strip(bounded_json.WHITE).encode())) > most:
                fault = f"{_said(texts, text)}, of {size:,} bytes in all, and only {most:,} of an answer are looked at"
            elif match is rules.TextMatch.CONTAINS and text.fields and not filled:
                fault = f"{_said(texts, text)}, and no text, which the rule asks for"
        case _:
            return
    if fault:
        raise OperatorError(f"{where}: {fault}: no answer is ever right. Correct the row, or leave it out")


def _range_fault(low: float | rules.RowText, high: float | rules.RowText, texts: RowTexts) -> str:
    """Return why no number lies in a rule's range for this row; empty where one does."""
    ends: list[float] = []
    for end in (low, high):
        if not isinstance(end, rules.RowText):
            ends.append(end)
        elif (number := bounded_json.decimal_of(texts.filled(end).strip(bounded_json.WHITE))) is None:
            return f"{_said(texts, end)}, and no number, which the rule asks for"
        else:
            ends.append(number)
    nothing = f"nothing lies in {ends[0]:.15g} ... {ends[1]:.15g}, which the rule asks for"
    return nothing if ends[0] > ends[1] else ""


def _said(texts: RowTexts, text: rules.RowText) -> str:
    return f"{', '.join(text.fields)} is {texts.filled(text)[:64]!r}"
