"""Put a run's prompt into its model's own chat template, once, when the run is made: the manifest holds the result."""

import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from protocol.errors import OperatorError
from sfnode.storage import disk

_TEMPLATE_FILE = "chat_template.jinja"
_TEMPLATE_BYTES_MAX = 1 << 20
_SECONDS_MAX = 10.0  # usual templates take milliseconds
_WORDS = "WHAT-THE-USER-SAYS"  # stands for the prompt, whose fields a template of chats must not see
_WRONG = (TemplateError, ValueError, TypeError, ArithmeticError, LookupError, RuntimeError, MemoryError, AttributeError)
_LEAVE_OUT = "Leave --chat out, or write the words around the prompt into --template and add --no-chat"


def chat_prompt(tokenizer: PreTrainedTokenizerBase, template: str, is_chat: bool | None) -> str:
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


def _around(tokenizer: PreTrainedTokenizerBase, own: str) -> tuple[str, str]:
    """Return the texts before and after the user's words."""
    said = [{"role": "user", "content": _WORDS}]
    until, traced = time.monotonic() + _SECONDS_MAX, sys.gettrace()

    def look(_frame: FrameType, _event: str, _argument: object) -> Any:
        if time.monotonic() > until:  # each range of a template is bounded; loops within loops are not
            raise RuntimeError(f"its loops have not ended after {_SECONDS_MAX:g} s")
        return look

    sys.settrace(look)
    try:
        whole = tokenizer.apply_chat_template(said, chat_template=own, add_generation_prompt=True, tokenize=False)
    except _WRONG as error:
        raise OperatorError(f"the model's chat template cannot be used: {error}. {_LEAVE_OUT}") from None
    finally:
        sys.settrace(traced)
    parts = str(whole).split(_WORDS)
    if len(parts) != 2:
        fault = f"it puts the user's words in {len(parts) - 1} places"
        raise OperatorError(f"the model's chat template cannot be used: {fault}. {_LEAVE_OUT}")
    first = tokenizer.bos_token
    if isinstance(first, str) and tokenizer.encode("a")[:1] == [tokenizer.bos_token_id]:
        parts[0] = parts[0].removeprefix(first)  # which this tokenizer puts before every prompt (SPEC 5.5)
    return parts[0], parts[1]
