"""Say in words which tokens stand for a task's label words; run as a program, for `sfnode doctor`, which has no torch.

Arguments: the model's folder, and the task as JSON. It prints a JSON list: what is right, or "" and what is wrong.
"""

import json
import sys
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from protocol.errors import OperatorError
from protocol.run import TaskSpec
from protocol.schema import from_json_untrusted
from sfnode.training.model import loading
from sfnode.training.task import PromptEncoder

_SHOWN = 8


def shown_words(encoder: PromptEncoder, task: TaskSpec) -> str:
    """Return a line with the label words and the number of tokens of each after a prompt; empty without label words."""
    if not encoder.words:
        return ""
    words, counts = task.label_words, [len(tokens) for tokens in encoder.words]
    shown = ", ".join(word if word == word.strip() else f'"{word}"' for word in words[:_SHOWN])
    shown += f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    least, most = min(counts), max(counts)
    amount = f"{least} to {most} tokens" if least < most else "one token each" if most == 1 else f"{most} tokens each"
    line = f"label words: {shown}; {amount} after the prompt"
    if encoder.label_tokens:
        place = len(encoder.lead) + 1
        line += f", and token {place} sets them apart" if most > 1 else ""
    else:
        digits = ", as it often does with digits after a template that ends with \\n,"
        hint = digits if all(word.strip().isdecimal() for word in words) else ","
        line += f"; where one token sets them apart{hint} a run learns more from each row"
    if encoder.joined:
        line += f"; this tokenizer joins {encoder.joined[0]!r} with the end of the template: end that otherwise"
    return line


def describe_tokens(folder: Path, task: TaskSpec) -> str:
    """Return what model and tokenizer in ``folder`` make of the task. OperatorError: they do not fit."""
    tokenizer: PreTrainedTokenizerBase = loading.load_tokenizer(folder)
    token_rows = loading.token_rows(loading.empty_model(folder))
    words = shown_words(PromptEncoder(tokenizer, task, token_rows), task)
    tokens, bare = len(tokenizer), len(tokenizer) - token_rows
    spare = f"; {bare} of them have no row in the model: data with these are refused" if bare > 0 else ""
    return "; ".join(part for part in (words, f"a tokenizer of {tokens:,} tokens{spare}") if part)


def main() -> None:
    """Check the task that the command line names, and print what is found."""
    try:
        task = from_json_untrusted(TaskSpec, sys.argv[2], "task")
        found = [describe_tokens(Path(sys.argv[1]), task), ""]
    except OperatorError as error:
        found = ["", str(error)]
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
