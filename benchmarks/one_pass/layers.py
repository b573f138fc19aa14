"""The last layers of a Llama-like model, on hidden states that are computed once for every row.

Only these layers change in a run, so what comes before them is the same for every state. Each attention output and each
MLP output of theirs is a slot: its input at the token that is read is kept, and its output gets `U C_l V_l^T x` added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from sfnode.training.task import Example

_ROWS_AT_ONCE = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """What a state adds to the slots of some rows.

    Attributes:
        U: fp32[h, r], common to all slots.
        V: per slot fp32[d_l, k].
        C: per state and slot fp32[G, L, r, k].
        group: of each row, which of the G states; int64[B].
    """

    U: Tensor
    V: Sequence[Tensor]
    C: Tensor
    group: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class PassResult:
    """What one forward pass of B rows gives: label logits fp32[B, K], each slot's input at the token read
    fp32[B, d_l], and the rms of the residual stream there fp32[B]."""

    logits: Tensor
    inputs: list[Tensor]
    rms: Tensor


class LateLayers:
    """Layers ``first`` and later of ``model`` over ``examples``, read at the last token of each prompt.

    Hidden states, labels and what a pass gives are on the model's device; numbers of rows are on the CPU.
    """

    def __init__(
        self, model: PreTrainedModel, examples: Sequence[Example], label_tokens: Sequence[int], first: int
    ) -> None:
        self.examples = tuple(examples)
        self.device = model.device
        self._body: Any = model.model
        self._layers = self._body.layers[first:]
        self._slots = [slot for layer in self._layers for slot in (layer.self_attn.o_proj, layer.mlp.down_proj)]
        head: Any = model.get_output_embeddings()
        self.embedding: Tensor = head.weight.detach()[list(label_tokens)].float()
        self.norm: Tensor = self._body.norm.weight.detach().float()
        self._epsilon: float = self._body.norm.variance_epsilon
        self.labels = torch.tensor([example.label for example in examples], device=self.device)
        self.lengths = torch.tensor([len(example.tokens) for example in examples])
        self._hidden: list[Tensor] = [torch.empty(0)] * len(examples)
        with torch.inference_mode():
            for rows in self._batches(torch.arange(len(examples))):
                ids = nn.utils.rnn.pad_sequence([torch.tensor(examples[row].tokens) for row in rows], batch_first=True)
                hidden = self._through(self._body.layers[:first], self._body.embed_tokens(ids.to(self.device)))
                for row, states in zip(rows.tolist(), hidden, strict=True):
                    self._hidden[row] = states[: self.lengths[row]].clone()

    @torch.inference_mode()
    def run(self, rows: Tensor, term: Term | None = None) -> PassResult:
        """Pass ``rows``, int64[B], through the layers, with what the state adds."""
        places, parts = [], []
        for batch in self._batches(rows):
            chosen = rows[batch]
            hidden = nn.utils.rnn.pad_sequence([self._hidden[row] for row in chosen.tolist()], batch_first=True)
            last = (self.lengths[chosen] - 1).to(self.device)
            here = None if term is None else replace(term, group=term.group[batch].to(self.device))
            with self._heard(last, here) as inputs:
                end = _at(self._through(self._layers, hidden), last)
            rms = end.pow(2).mean(-1).add(self._epsilon).sqrt()
            parts.append(PassResult(logits=end / rms[:, None] * self.norm @ self.embedding.T, inputs=inputs, rms=rms))
            places.append(batch)
        back = torch.cat(places).argsort().to(self.device)
        return PassResult(
            logits=torch.cat([part.logits for part in parts])[back],
            inputs=[torch.cat(each)[back] for each in zip(*(part.inputs for part in parts), strict=True)],
            rms=torch.cat([part.rms for part in parts])[back],
        )

    def _batches(self, rows: Tensor) -> Iterator[Tensor]:
        """Yield places in ``rows``, those of like length together. Padding comes after a row, where nothing sees it."""
        yield from torch.split(self.lengths[rows].argsort(), _ROWS_AT_ONCE)

    def _through(self, layers: Any, hidden: Tensor) -> Tensor:
        positions = torch.arange(hidden.shape[1], device=self.device)[None]
        rotary = self._body.rotary_emb(hidden, positions)
        for layer in layers:
            hidden = layer(hidden, position_embeddings=rotary, position_ids=positions, attention_mask=None)
        return hidden

    @contextmanager
    def _heard(self, last: Tensor, term: Term | None) -> Iterator[list[Tensor]]:
        """Keep the input of each slot at the token read, and add the term to its output."""
        inputs: list[Tensor] = []

        def hear(number: int, _slot: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
            inputs.append(_at(given[0], last))
            if term is None:
                return None
            core = term.C[term.group, number % term.C.shape[1]]
            moved = torch.einsum("btk,brk->btr", given[0].float() @ term.V[number], core) @ term.U.T
            return output + moved.to(output.dtype)

        handles = [slot.register_forward_hook(partial(hear, number)) for number, slot in enumerate(self._slots)]
        try:
            yield inputs
        finally:
            for handle in handles:
                handle.remove()


def _at(states: Tensor, last: Tensor) -> Tensor:
    """Return the states of each row at its last token, fp32[B, d]."""
    return states[torch.arange(len(last), device=last.device), last].float()
