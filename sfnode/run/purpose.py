"""Say in a sentence what a run's model learns, for those who join it or look at it."""

from protocol.run import TaskKind, TaskSpec, parse_reward
from sfnode.rewards import rule_in_words

_WORDS_MAX = 6
_LINE_MAX = 100


def purpose_of(task: TaskSpec) -> str:
    """Return what the model learns, such as "to answer no or yes to: {sentence} It was".

    Of a template it has the first line. The text is the owner's: print it escaped.
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
            return f"to answer{to}. An answer gets {rule_in_words(parse_reward(task.completion))}"


def _line(template: str) -> str:
    """Return the first line that holds something, cut at a word if it is long."""
    line = next((" ".join(each.split()) for each in template.splitlines() if each.strip()), "")
    return line if len(line) <= _LINE_MAX else f"{line[:_LINE_MAX].rpartition(' ')[0] or line[:_LINE_MAX]} ..."
