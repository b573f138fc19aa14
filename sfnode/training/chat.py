"""Put a run's prompt into its model's own chat template, once, when the run is made: the manifest holds the result.

A stranger's template may compute for hours or fill the memory, in one expression. A process with limits follows it:
``python -m sfnode.training.chat SECONDS FILE``, with the template and the special tokens as JSON in the file.
"""

import json
import resource
import sys
from contextlib import suppress
from pathlib import Path
from subprocess import TimeoutExpired
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from jinja2 import TemplateError
from transformers.utils.chat_template_utils import render_jinja_template

from protocol.errors import OperatorError
from sfnode.children.child_program import Program
from sfnode.storage import disk
from sfnode.training.resource_limits import allow

if TYPE_CHECKING:  # takes seconds, which the process needs not
    from transformers import PreTrainedTokenizerBase

_TEMPLATE_FILE = "chat_template.jinja"
_TEMPLATE_BYTES_MAX = 1 << 20
_SECONDS_MAX = 10  # of computing; usual templates take milliseconds
_WAIT_S = 600.0  # on a busy machine
_WORDS = "WHAT-THE-USER-SAYS"  # stands for the prompt, whose fields a template of chats must not see
_WRONG = (TemplateError, ValueError, TypeError, ArithmeticError, LookupError, RuntimeError, SyntaxError, AttributeError)
_LEAVE_OUT = "Leave --chat out, or write the words around the prompt into --template and add --no-chat"


def chat_prompt(tokenizer: "PreTrainedTokenizerBase", template: str, is_chat: bool | None) -> str:
    """Return ``template`` as the user's words in the chat template of the tokenizer's model.

    None: where the model has a chat template, else ``template`` as it is. Braces of the chat template are doubled.
    OperatorError: it is wanted and there is none, or it cannot be used.
    """
    if is_chat is False:
        return template
    file = Path(tokenizer.name_or_path) / _TEMPLATE_FILE  # where newer models keep it
    own = tokenizer.chat_template
    if tokenizer.name_or_path and file.is_file():
        own = disk.read_bytes(file, "the model's chat template", _TEMPLATE_BYTES_MAX).decode("utf-8", "replace")
    if isinstance(own, dict):
        own = own.get("default")
    if own is None and is_chat:
        raise OperatorError(f"--chat: {tokenizer.name_or_path or 'this model'} has no chat template. {_LEAVE_OUT}")
    if own is None:
        return template
    before, after = _around(tokenizer, own)
    return before.replace("{", "{{").replace("}", "}}") + template + after.replace("{", "{{").replace("}", "}}")


def _around(tokenizer: "PreTrainedTokenizerBase", own: str) -> tuple[str, str]:
    """Return the texts before and after the user's words."""
    doing, advice = "use the model's chat template", ". TMPDIR says where"
    with disk.os_errors(doing, advice), TemporaryDirectory(prefix="sfnode-") as folder:
        file = Path(folder, "chat.json")
        file.write_text(json.dumps([own, tokenizer.special_tokens_map]), "utf-8")
        try:
            ended = Program(module="sfnode.training.chat", arguments=(str(_SECONDS_MAX), str(file))).run(_WAIT_S)
            whole, error = json.loads(ended.stdout)
        except (TimeoutExpired, ValueError):
            whole, error = "", f"it takes more than {_SECONDS_MAX} s of computing, or too much memory"
    if error:
        raise OperatorError(f"the model's chat template cannot be used: {error}. {_LEAVE_OUT}")
    parts = whole.split(_WORDS)
    if len(parts) != 2:
        fault = f"it puts the user's words in {len(parts) - 1} places"
        raise OperatorError(f"the model's chat template cannot be used: {fault}. {_LEAVE_OUT}")
    first = tokenizer.bos_token
    if isinstance(first, str) and tokenizer.encode("a")[:1] == [tokenizer.bos_token_id]:
        parts[0] = parts[0].removeprefix(first)  # which this tokenizer puts before every prompt (SPEC 5.5)
    return parts[0], parts[1]


def _follow(seconds_max: int, own: str, special: dict[str, str]) -> str:
    """Return what a template makes of the user's words, within limits on this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit_s = int(used.ru_utime + used.ru_stime) + 1 + seconds_max
    with suppress(ValueError, OSError):  # a lower limit is set already
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 1))
    allow(memory=0, file=_TEMPLATE_BYTES_MAX)
    said = [{"role": "user", "content": _WORDS}]
    made, _ = render_jinja_template([said], chat_template=own, add_generation_prompt=True, **special)
    if len(made[0]) > _TEMPLATE_BYTES_MAX:
        raise MemoryError
    return str(made[0])


def main() -> None:
    """Follow the template that the command line names, and print the text, or an empty one and what is wrong."""
    seconds_max, file = sys.argv[1:]
    own, special = json.loads(Path(file).read_text("utf-8"))
    try:
        answer = (_follow(int(seconds_max), own, special), "")
    except MemoryError:
        answer = ("", "it takes too much memory")
    except _WRONG as error:
        answer = ("", str(error) or type(error).__name__)
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
