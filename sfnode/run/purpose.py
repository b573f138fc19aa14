"""Say in a sentence what a run's model learns, and what its rule of rewards gives, for those who join or look at it.

Texts of a rule stay as they are written.
"""

import re

from protocol.run import TaskKind, TaskSpec, reward

_WORDS_MAX = 6
_LINE_MAX = 100
_SHOWN_MAX = 60
_MARKED = re.compile(r"^[^{]*<\|\w+\|>(?=.*\{)|<\|\w+\|>[^}]*$")  # before and behind the fields: marks of a chat, roles
_MATCHES = {
    reward.TextMatch.EXACT: "is {}",
    reward.TextMatch.CONTAINS: "contains {}",
    reward.TextMatch.REGEX: "matches the pattern {}",
}


def purpose_of(task: TaskSpec) -> str:
    """Return what the model learns, such as "to answer no or yes to: {sentence} It was".

    Of a template it has the first line, of a chat's the first with a field. The text is the owner's: print it escaped.
    """
    prompt = _line(task.template)
    to, after = (f" to: {prompt}", f", after: {prompt}") if prompt else ("", "")
    match task.kind:
        case TaskKind.CLASSIFICATION:
            words = [word.strip() for word in task.label_words]
            if len(words) > _WORDS_MAX:
                words = [*words[: _WORDS_MAX - 1], f"another of {len(words)} words"]
            return f"to answer {', '.join(words[:-1])} or {words[-1]}{to}"
        case TaskKind.CHOICE:
            return f"to choose the right one of a row's texts{after}"
        case TaskKind.COMPLETION:
            return f"to write {_line(task.completion)}{after}"
        case TaskKind.REWARD:
            gets = rule_in_words(reward.parse_reward(task.completion)).removeprefix("the answer gets ")
            return f"to answer{to}. An answer gets {gets}"


def _line(template: str) -> str:
    """Return the first line that holds something, a field after a chat's marks, cut at a word if it is long."""
    lines = [" ".join(each.split()) for each in template.splitlines() if each.strip()]
    line = _MARKED.sub("", next((each for each in lines if "{" in each or not lines[0].startswith("<")), "")).strip()
    return line if len(line) <= _LINE_MAX else f"{line[:_LINE_MAX].rpartition(' ')[0] or line[:_LINE_MAX]} ..."


def rule_in_words(rule: reward.RewardRule) -> str:
    """Return one sentence: what the rule rewards, and which answers are sampled, or named by rows."""
    said = f"1 if the answer {_said(rule.check)}, else 0"
    if isinstance(rule.check, reward.SumCheck):
        said = f"the answer {_said(rule.check)}"
    if rule.answer is not None:
        return f"{said}; rows name a right answer, {_shown(rule.answer)}, of at most {rule.tokens:,} tokens"
    return f"{said}; {rule.samples} answers of at most {rule.tokens:,} tokens to each prompt"


def _said(check: reward.Check) -> str:
    match check:
        case reward.SumCheck():
            whole = sum(weight for weight, _ in check.terms)
            parts = [f"{weight / whole:.3g} if it {_said(term)}" for weight, term in check.terms]
            return "gets " + " + ".join(parts)
        case reward.RangeCheck():
            return _range_said(check)
        case reward.JsonSchema():
            return f"is JSON: {_schema_said(check)}"
        case _:
            return _MATCHES[check.match].format(_shown(check.text))


def _range_said(check: reward.RangeCheck) -> str:
    low, high = (_shown(end) if isinstance(end, reward.RowText) else f"{end:,.15g}" for end in (check.low, check.high))
    ends = low if low == high else f"{low} to {high}"
    if check.measure is reward.Measure.NUMBER:
        return f"is the number {ends}" if low == high else f"is a number of {ends}"
    return f"has {ends} {check.measure.removesuffix('s') if ends == '1' else check.measure}"


def _schema_said(schema: reward.JsonSchema) -> str:
    kind = "a constant" if schema.allowed is not None else "anything" if schema.type is None else str(schema.type)
    if schema.items is not None:
        kind += f" of {_schema_said(schema.items)}"
    names = [f"{name} ({_schema_said(each)})" for name, each in schema.properties.items()]
    names += [name for name in schema.required if name not in schema.properties]
    whole = f"{kind} with {', '.join(names)}" if names else kind
    return whole if len(whole) <= _SHOWN_MAX else f"{whole[: _SHOWN_MAX - 3]}..."


def _shown(text: reward.RowText) -> str:
    """Return a text in quotes, with its fields in braces."""
    whole = repr(text.filled(lambda name: f"{{{name}}}")).replace("\\\\", "\\")  # a pattern as it was written
    return whole if len(whole) <= _SHOWN_MAX else f"{whole[: _SHOWN_MAX - 3]}..."
