"""Let a model write answers token by token, and listen to its layers on the way.

A prompt passes once for all of its answers; each further token costs one pass of one token. Where a model's
cache cannot be repeated, as that of linear attention, a prompt passes once for each answer. Where it has no cache that
gives the same numbers, every token costs a pass of the whole text.

Shapes: P prompts, N = P x copies answers, T tokens, H width of the hidden states, V vocabulary, I inputs of a layer.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sfnode.training.model import MatrixTerm, layer_probe
from sfnode.training.shared_model import SharedModel

Tokens = tuple[int, ...]
# Called for each token of all answers: how likely each token was [N, V], the one drawn int64[N], inputs of the layers
# that are listened to [N, I], and which answers had not ended before, bool[N].
Listener = Callable[[Tensor, Tensor, list[Tensor], Tensor], None]

_PROBED = ((3, 9, 4), (7, 2, 5, 11, 6))  # prompts of unlike lengths, below every vocabulary that is in use
_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3}  # of the largest number; 16-bit dtypes: 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Holds answers, those to one prompt next to each other.

    Attributes:
        tokens: with the token that ended the answer, if there was one.
        has_ended: whether there was.
    """

    tokens: tuple[Tokens, ...]
    has_ended: tuple[bool, ...]

    def texts(self) -> list[Tokens]:
        """Return the tokens without the one that ended the answer."""
        return [tokens[:-1] if ended else tokens for tokens, ended in zip(self.tokens, self.has_ended, strict=True)]


class AnswerWriter:
    """Lets a model with some terms write answers of at most ``tokens_max`` tokens.

    Args:
        names: weights of the layers that a listener hears. OperatorError: one of them is not linear.
        stops: further tokens that end an answer; the model's configuration names some itself.
        least: tokens less likely than this share of the likeliest one are not drawn (min-p: Nguyen et al. 2024).
    """

    def __init__(
        self,
        shared: SharedModel,
        terms: Mapping[str, MatrixTerm],
        names: Sequence[str] = (),
        *,
        stops: Iterable[int],
        tokens_max: int,
        least: float = 0.0,
    ) -> None:
        self.passes = passes_of(shared, terms, names)
        self._shared, self._tokens_max, self._least = shared, tokens_max, least
        self._stops_S = torch.tensor(sorted(stop_tokens(shared, stops)), dtype=torch.int64, device=shared.device)

    @torch.inference_mode()
    def write(
        self,
        prompts: Sequence[Tokens],
        draws: np.typing.NDArray[np.float64] | None = None,
        listener: Listener | None = None,
    ) -> Answers:
        """Write one answer to each prompt, or as many as there are ``draws``: float64[P, copies, tokens_max] in (0, 1).

        A draw chooses a token as the model thinks: the first at which the sum of the probabilities exceeds it. Without
        draws, it is the likeliest token, and there is no listener.
        """
        shared, copies = self._shared, 1 if draws is None else draws.shape[1]
        drawn = None if draws is None else torch.from_numpy(draws).to(shared.loss_dtype).to(shared.device).flatten(0, 1)
        hidden_NH, inputs = self.passes.prompts(prompts, copies)
        alive_N = torch.ones(len(prompts) * copies, dtype=torch.bool, device=shared.device)
        written: list[Tensor] = []
        for place in range(self._tokens_max):
            logits_NV = shared.scored_head.logits(hidden_NH.to(shared.loss_dtype), None, slice(None))
            if drawn is None:
                token_N = logits_NV.argmax(dim=1)
            else:
                likely_NV = logits_NV.softmax(dim=1)
                if self._least:
                    likely_NV *= likely_NV >= self._least * likely_NV.amax(dim=1, keepdim=True)
                    likely_NV /= likely_NV.sum(dim=1, keepdim=True)
                sums_NV = likely_NV.cumsum(dim=1)
                wanted_N = drawn[:, place] * sums_NV[:, -1]
                found_N = torch.searchsorted(sums_NV, wanted_N[:, None], right=True)[:, 0]
                token_N = found_N.clamp(max=sums_NV.shape[1] - 1)
                if listener is not None:
                    listener(likely_NV, token_N, inputs, alive_N)
            written.append(torch.where(alive_N, token_N, -1))
            alive_N = alive_N & ~torch.isin(token_N, self._stops_S)
            if place + 1 == self._tokens_max or not bool(alive_N.any()):
                break
            hidden_NH, inputs = self.passes.further(token_N)
        rows = torch.stack(written, dim=1).tolist()
        tokens = tuple(tuple(token for token in row if token >= 0) for row in rows)
        return Answers(tokens=tokens, has_ended=tuple((~alive_N).tolist()))


def stop_tokens(shared: SharedModel, further: Iterable[int]) -> frozenset[int]:
    """Return the tokens that end a text: those of the model's settings for writing, its config, and ``further``."""
    model: Any = shared.model
    found = set(further)
    for settings in (getattr(model, "generation_config", None), model.config.get_text_config()):
        named = getattr(settings, "eos_token_id", None)
        found.update(named if isinstance(named, list) else [] if named is None else [named])
    return frozenset(found)


def passes_of(
    shared: SharedModel, terms: Mapping[str, MatrixTerm], names: Sequence[str] = ()
) -> "CachedPasses | WholePasses":
    """Return the quickest way to pass tokens with these terms that gives the model's own numbers.

    It passes prompts, then one token of each answer at a time. Both return the hidden state at the last token, [N, H],
    and the inputs there of the layers that are listened to: those of the weights in ``names``.
    OperatorError: one of these layers is not linear.
    """
    if shared.passes is None:
        shared.passes = _quickest(shared)
    return _KINDS[shared.passes](shared, terms, names)


class CachedPasses:
    """Keeps keys and values of what has passed. Prompts are padded on the left, so that all end at one place."""

    def __init__(self, shared: SharedModel, terms: Mapping[str, MatrixTerm], names: Sequence[str]) -> None:
        self._shared, self._terms, self._names = shared, terms, names
        self._body: Any = layer_probe.body_of(shared.model)
        self._takes_positions = "position_ids" in inspect.signature(self._body.forward).parameters
        self._cache: Any = None
        self._mask_NT = torch.zeros(0, 0, dtype=torch.int64)

    def prompts(self, prompts: Sequence[Tokens], copies: int) -> tuple[Tensor, list[Tensor]]:
        """Pass the prompts once, and keep what they leave ``copies`` times."""
        device, width = self._shared.device, max(map(len, prompts))
        padded = [[0] * (width - len(prompt)) + list(prompt) for prompt in prompts]
        mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        self._cache, self._mask_NT = None, torch.tensor(mask, device=device)
        hidden_PH, inputs = self._pass(torch.tensor(padded, device=device))
        if copies > 1:
            self._cache.batch_repeat_interleave(copies)
            self._mask_NT = self._mask_NT.repeat_interleave(copies, dim=0)
        return hidden_PH.repeat_interleave(copies, dim=0), [each.repeat_interleave(copies, dim=0) for each in inputs]

    def further(self, token_N: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Pass one token of each answer."""
        self._mask_NT = torch.cat([self._mask_NT, torch.ones_like(self._mask_NT[:, :1])], dim=1)
        return self._pass(token_N[:, None])

    def _pass(self, tokens_NT: Tensor) -> tuple[Tensor, list[Tensor]]:
        rows, width = tokens_NT.shape
        last_N = torch.arange(1, rows + 1, device=tokens_NT.device) * width - 1
        places = {}
        if self._takes_positions:
            places["position_ids"] = (self._mask_NT.cumsum(dim=1) - 1).clamp_min(0)[:, -width:]
        context = self._shared.pass_context
        with context.carrying(self._terms, 1, tokens_NT.numel()), context.hearing(self._names, last_N):
            found = self._body(
                input_ids=tokens_NT, attention_mask=self._mask_NT, past_key_values=self._cache, use_cache=True, **places
            )
            inputs = context.heard(self._names)
        self._cache = found.past_key_values
        return found.last_hidden_state[:, -1], inputs


class RepeatedPasses(CachedPasses):
    """As `CachedPasses`, for caches that cannot be repeated."""

    def prompts(self, prompts: Sequence[Tokens], copies: int) -> tuple[Tensor, list[Tensor]]:
        """Pass each prompt ``copies`` times."""
        return super().prompts([prompt for prompt in prompts for _ in range(copies)], 1)


class WholePasses:
    """Passes the whole text for each token: slow, and right for every causal model. Texts are padded on the right."""

    def __init__(self, shared: SharedModel, terms: Mapping[str, MatrixTerm], names: Sequence[str]) -> None:
        self._shared, self._terms, self._names = shared, terms, names
        self._texts: list[list[int]] = []

    def prompts(self, prompts: Sequence[Tokens], copies: int) -> tuple[Tensor, list[Tensor]]:
        """Pass each prompt ``copies`` times."""
        self._texts = [list(prompt) for prompt in prompts for _ in range(copies)]
        return self._pass()

    def further(self, token_N: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Pass all texts with one token more."""
        for text, token in zip(self._texts, token_N.tolist(), strict=True):
            text.append(token)
        return self._pass()

    def _pass(self) -> tuple[Tensor, list[Tensor]]:
        width, device = max(map(len, self._texts)), self._shared.device
        tokens_NT = torch.tensor([[*text, *([0] * (width - len(text)))] for text in self._texts], device=device)
        last_N = torch.tensor(
            [number * width + len(text) - 1 for number, text in enumerate(self._texts)], device=device
        )
        context = self._shared.pass_context
        with context.carrying(self._terms, 1, tokens_NT.numel()), context.hearing(self._names, last_N):
            hidden_AH = layer_probe.hidden_states(self._shared.model, tokens_NT).flatten(0, 1)
            inputs = context.heard(self._names)
        return hidden_AH[last_N], inputs


_KINDS: tuple[type[CachedPasses | WholePasses], ...] = (CachedPasses, RepeatedPasses, WholePasses)  # quickest first


@torch.inference_mode()
def _quickest(shared: SharedModel) -> int:
    """Return the first of `_KINDS` that gives what whole passes give, for prompts of unlike lengths."""
    whole = _probe(shared, WholePasses)
    tolerance = _TOLERANCE.get(shared.dtype, 0.05) * float(whole.abs().max())
    for number, kind in enumerate(_KINDS):
        try:
            found = _probe(shared, kind)
        except torch.OutOfMemoryError:
            raise
        except (AttributeError, TypeError, ValueError, LookupError, RuntimeError):
            continue
        if found.shape == whole.shape and float((found - whole).abs().max()) <= tolerance:
            return number
    return len(_KINDS) - 1


def _probe(shared: SharedModel, kind: type[CachedPasses | WholePasses]) -> Tensor:
    token_N, passes = torch.tensor([8, 8, 10, 10], device=shared.device), kind(shared, {}, ())
    return torch.stack([passes.prompts(_PROBED, 2)[0], passes.further(token_N)[0], passes.further(token_N)[0]]).float()
