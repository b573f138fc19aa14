"""``sfnode bench answer``: compare a message of rewards with transformers' own writing of as many answers."""

import json
from dataclasses import dataclass, replace
from typing import Any

import torch
from tokenizers import Tokenizer, models
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from protocol.errors import OperatorError
from protocol.limits import DIRECTIONS_MAX
from protocol.run import parse_reward
from sfnode.training.bench import synthetic_models, timing
from sfnode.training.bench.synthetic_models import Action
from sfnode.training.devices import choose_device
from sfnode.training.estimator import Estimator
from sfnode.training.model import loading, trainable_tensors
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import AnswerJudge

_PROMPT_TOKENS = 64  # a short question in a chat template
# What a random model writes differs in its digits: of one token in few of them, of a thousand in few rows of four. So
# two answers are hardly ever equally good.
_DIGITS = (*"01234567", "12", "34", "56", "78", "135", "246", "1357", "2468")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSize:
    """Says how many answers a message has, how many of them belong to each prompt, and how long each is."""

    answers: int
    samples: int
    tokens: int


def bench_answer(shape: str, *, size: AnswerSize, dtype: str, repeats: int, device: str) -> dict[str, object]:
    """Time a message and `generate` of as many answers in turn; docs/bench.md explains the figures.

    Returns:
        answers_per_s, tokens_per_s: of a message, whose answers are checked and turned into numbers, too.
        ratio_to_generate: message / `generate` with a cache, from prompts of the same length.

    OperatorError: the answers are not a multiple of the samples, or too many.
    """
    if size.answers % size.samples or size.answers > DIRECTIONS_MAX:
        raise OperatorError(
            f"--answers {size.answers} --samples {size.samples}: each prompt gets as many answers as there are "
            f"samples. Give a multiple of them, {DIRECTIONS_MAX:,} at most, such as 64 and 8"
        )
    where = choose_device(device)
    model = synthetic_models.random_model(shape, where, loading.compute_dtype(dtype))
    generate = _generation(synthetic_models.shared_copy(model), size)
    times = timing.timed_in_turn({"message": _message(model, size), "generate": generate}, where, repeats)
    found = timing.compared(times, {"to_generate": ("message", "generate")})
    seconds = sorted(times["message"])[len(times["message"]) // 2]
    return {
        "shape": shape,
        "answers": size.answers,
        "samples": size.samples,
        "tokens": size.tokens,
        "prompt_tokens": _PROMPT_TOKENS,
        "dtype": dtype,
        "device": where.type,
        "threads": torch.get_num_threads(),
        "answers_per_s": size.answers / seconds,
        "tokens_per_s": size.answers * size.tokens / seconds,
        **found,
    }


def _message(model: PreTrainedModel, size: AnswerSize) -> Action:
    check = {"sum": [[1 << place, {"contains": digits}] for place, digits in enumerate(_DIGITS)]}
    rule = json.dumps({"check": check, "samples": size.samples, "tokens": size.tokens})
    text_tokens = _PROMPT_TOKENS + size.tokens
    bases = synthetic_models.reward_bases(trainable_tensors(model), rule, size=(size.answers, text_tokens))
    judge = AnswerJudge(_number_words(model.config.get_text_config().vocab_size), parse_reward(rule))
    data = replace(synthetic_models.random_data(size.answers, _PROMPT_TOKENS), label_tokens=(), judge=judge)
    session = Estimator(SharedModel(model), bases, data)
    return lambda: session.estimate(1, 0)


def _number_words(count: int) -> PreTrainedTokenizerBase:
    """Return a tokenizer whose tokens are written as their numbers."""
    words = Tokenizer(models.WordLevel({str(number): number for number in range(count)}, unk_token="0"))
    made: Any = PreTrainedTokenizerFast  # carries no types
    result: PreTrainedTokenizerBase = made(tokenizer_object=words, unk_token="0")
    return result


def _generation(model: PreTrainedModel, size: AnswerSize) -> Action:
    data = synthetic_models.random_data(size.answers // size.samples, _PROMPT_TOKENS)
    prompts_PT = torch.tensor([example.tokens for example in data.examples], device=model.device)
    writer: Any = model

    @torch.inference_mode()
    def run() -> None:
        writer.generate(
            input_ids=prompts_PT,
            attention_mask=torch.ones_like(prompts_PT),
            num_return_sequences=size.samples,
            min_new_tokens=size.tokens,
            max_new_tokens=size.tokens,
            do_sample=True,
            top_k=0,
            pad_token_id=0,
        )

    return run
