"""Hold a base model in memory with what all its sessions share: bases, folded weights, evaluations, scores."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from transformers import PreTrainedModel

from protocol.crypto import RunId
from protocol.errors import OperatorError
from protocol.subspace import Bases, Int8Array
from sfnode.training.allocator import giving_back_freed_memory
from sfnode.training.model import Weight, WeightSwitch, layer_probe, loading, perturbed, quantised, wide_products
from sfnode.training.task import CandidateBatch, Example, OutputHead, RowBatch, Scores, TaskData, batch_of, scoring
from sfnode.worker_protocol import Evaluated

BASES_KEPT = 2  # the current epoch, and the next one, which fast nodes reach first
_SHARED_WIDTH_MAX = 4_096  # what says which tokens see which takes width x width numbers: 64 MiB a row in fp32
# Ends of names in config.json of how many tokens a layer takes in, or the model
_REACHES = ("window", "window_size", "chunk_size", "index_topk", "position_embeddings", "n_positions")
_CHECK_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3}  # of the largest logit; 16-bit dtypes: 0.05


class FoldedWeights(dict[str, Weight]):
    """Holds weights by name, shared by sessions whose closed epochs are equal. A plain dict has no weak references."""


class SharedModel:
    """Holds a base model and what its sessions share. Runs one forward pass at a time.

    Attributes:
        lock: held while the layers carry terms, hooks or other weights: a pass of another thread would take them.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.lock = threading.RLock()  # a reward of one's own may evaluate within a measurement
        self.pass_context = perturbed.PassContext()
        self.switch = WeightSwitch(model)
        rows_min = wide_products.rows_to_widen(model.dtype, model.device.type, torch.get_num_threads())
        self.is_widened = rows_min is not None
        if rows_min is not None:
            wide_products.widen(layer_probe.body_of(model), rows_min)
        self.parameters = sum(weight.numel() for weight in self.switch.base.values())
        self.folds: WeakValueDictionary[bytes, FoldedWeights] = WeakValueDictionary()
        self.evaluations: OrderedDict[tuple[object, ...], Evaluated] = OrderedDict()
        self._bases: OrderedDict[tuple[RunId, str], tuple[tuple[Tensor, Tensor | None], ...]] = OrderedDict()
        head = loading.output_embedding(model)
        head_name = next(name for name, weight in self.switch.base.items() if weight is head.weight)
        self.head = head
        self.scored_head = OutputHead(head, head_name, self.pass_context, loading.logit_scale(model))
        layer_probe.check_causal(model)
        self.pass_context.read_at_last = layer_probe.layers_read_at_last(model)
        self.final_norm = layer_probe.norm_at_the_end(model)
        self._shared_width_max: int | None = None  # of rows with several candidates; None: not tried
        self.passes: int | None = None  # which of the ways to pass answers is the quickest; None: not tried
        check_head(self)

    @property
    def device(self) -> torch.device:
        """Return the device that the model computes on."""
        return cast(torch.device, self.model.device)

    @property
    def dtype(self) -> torch.dtype:
        """Return the dtype of weights and activations."""
        return cast(torch.dtype, self.model.dtype)

    @property
    def loss_dtype(self) -> torch.dtype:
        """Return the dtype of head, softmax, loss and cores: fp32, or fp64 for an fp64 model."""
        return torch.promote_types(self.dtype, torch.float32)

    def bases(self, bases: Bases, epoch: int) -> tuple[tuple[Tensor, Tensor | None], ...]:
        """Return (u, v) of every tensor of the run in the model's dtype on its device; for a vector v is None.

        A matrix's u has the form that `with_spare_row` gives. Entries are exact in every dtype.
        """
        key = (bases.manifest.run_id, bases.name(epoch))
        if key not in self._bases:
            pairs: list[tuple[Tensor, Tensor | None]] = []
            for basis in (bases.of(epoch, index) for index in range(len(bases.manifest.tensors))):
                u, v = self.side(basis.u, basis.u_exp), basis.v
                pairs.append((u, None) if v is None else (perturbed.with_spare_row(u), self.side(v, basis.v_exp)))
            self._bases[key] = tuple(pairs)
        self._bases.move_to_end(key)
        while len(self._bases) > BASES_KEPT:
            self._bases.popitem(last=False)
        return self._bases[key]

    def target(self, bases: Bases) -> Tensor:
        """Return the target of a dense core's basis (SPEC 4.6), [H, core_rows] in the loss dtype."""
        return self.side(*bases.target()).to(self.loss_dtype)

    def side(self, entries: Int8Array, exp: int) -> Tensor:
        """Return one side of a basis in the model's dtype on its device; exact, as bytes fit into every dtype."""
        return torch.from_numpy(entries).to(self.device, self.dtype) * 2.0**exp

    def label_logits(self, rows: RowBatch, label_tokens: Sequence[int]) -> Tensor:
        """Return the logits of the label words after each prompt, [N, labels] in the loss dtype."""
        with self.pass_context.reading(rows.last, rows.tokens.numel()):
            hidden_NTH = self.hidden(rows)
        hidden_NH = hidden_NTH[torch.arange(len(hidden_NTH), device=self.device), rows.last].to(self.loss_dtype)
        words, head = torch.tensor(label_tokens, device=self.device), self.scored_head
        return head.logits(hidden_NH, head.mixed(hidden_NH), words)

    def batch(self, data: TaskData, examples: Sequence[Example], groups: int = 1) -> RowBatch | CandidateBatch:
        """Batch ``examples`` of ``groups`` groups (`batch_of`); candidates share their prompt where the model can."""
        is_text = all(each.shared_width == each.width for each in examples)  # one candidate at most has tokens in a row
        is_shared = is_text or self.shares_prompts(max(each.shared_width for each in examples))
        return batch_of(data, examples, groups, self.device, is_prompt_shared=is_shared)

    def shares_prompts(self, width: int) -> bool:
        """Return whether rows of ``width`` tokens with several candidates get what rows of their own get."""
        if self._shared_width_max is None:
            config = self.model.config.get_text_config().to_dict()
            reaches = (value for name, value in config.items() if name.endswith(_REACHES) and type(value) is int)
            widest = min([_SHARED_WIDTH_MAX, *(reach for reach in reaches if reach > 0)])
            self._shared_width_max = widest if _agrees_on_shared_prompts(self) else 0
        return width <= self._shared_width_max

    def hidden(self, rows: RowBatch | CandidateBatch) -> Tensor:
        """Return the hidden states that the head reads, [N, T, H]."""
        if isinstance(rows, RowBatch) or rows.sight is None:
            return layer_probe.hidden_states(self.model, rows.tokens)
        sees = {"position_ids": rows.sight.places, "attention_mask": rows.sight.mask(self.dtype)}
        return layer_probe.hidden_states(self.model, rows.tokens, **sees)

    def norm_gain(self) -> Tensor:
        """Return by how much the norm before the head multiplies each number of a stream of size one, [H]."""
        hidden = self.head.weight.shape[1]
        if self.final_norm is None:
            return torch.ones(hidden, dtype=self.loss_dtype, device=self.device)
        # Not its weight: some models add one to that
        signs_H = torch.ones(hidden, dtype=self.dtype, device=self.device)
        signs_H[1::2] = -1.0
        with self.pass_context.carrying({}, 1, 1):
            found_H = self.final_norm(signs_H[None]) - self.final_norm(torch.zeros_like(signs_H)[None])
        gain_H: Tensor = (found_H[0] * signs_H).to(self.loss_dtype)
        return gain_H

    def scores(self, rows: RowBatch | CandidateBatch, label_tokens: Sequence[int]) -> Scores:
        """Return losses and predictions of ``rows``; ``label_tokens`` are used only if the rows are bare prompts."""
        if isinstance(rows, RowBatch):
            return scoring.score_words(self.label_logits(rows, label_tokens), rows.labels)
        return scoring.score_candidates(self.hidden(rows), self.scored_head, rows, self.loss_dtype)


def load_shared(precision: str, folder: Path, device: torch.device, device_memory: int | None = None) -> SharedModel:
    """Load the model in ``folder`` (`load_in`), and return the memory that only loading needed to the system."""
    with giving_back_freed_memory(for_good=device_memory is not None):
        return SharedModel(quantised.load_in(precision, folder, device, device_memory))


@torch.inference_mode()
def check_head(shared: SharedModel) -> None:
    """Raise OperatorError unless base model plus head give the same logits as the whole model."""
    vocabulary = shared.model.config.get_text_config().vocab_size
    tokens_NT = layer_probe.probe_tokens(shared.model)
    words = [3 % vocabulary, 5 % vocabulary, vocabulary - 1]
    last_N = torch.full_like(tokens_NT[:, 0], tokens_NT.shape[1] - 1)
    try:
        ours = shared.label_logits(RowBatch(tokens=tokens_NT, last=last_N, labels=last_N), words)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:  # hidden states of another width than the head's
        ours = torch.full((len(tokens_NT), len(words)), torch.inf, dtype=shared.loss_dtype, device=shared.device)
    theirs = shared.model(input_ids=tokens_NT, use_cache=False).logits[:, -1, words].to(shared.loss_dtype)
    scale = max(theirs.abs().max().item(), 1e-6)
    if (ours - theirs).abs().max().item() > _CHECK_TOLERANCE.get(shared.dtype, 0.05) * scale:
        raise OperatorError(
            f"{type(shared.model).__name__} computes its logits in a way that is not supported (not hidden state times "
            "output embedding); choose another model"
        )


@torch.inference_mode()
def _agrees_on_shared_prompts(shared: SharedModel) -> bool:
    """Pass two candidates in one row, and each after a prompt of its own; return whether that is the same.

    It is not where a layer passes something on from token to token, or finds out by itself which tokens see which.
    """
    tokens = tuple(layer_probe.probe_tokens(shared.model, 1, 16)[0].tolist())
    row, data = Example(tokens=tokens[:6], label=0, candidates=(tokens[6:10], tokens[10:])), TaskData(label_tokens=())
    two, one = (batch_of(data, [row], 1, shared.device, is_prompt_shared=each) for each in (False, True))
    assert isinstance(two, CandidateBatch) and isinstance(one, CandidateBatch) and one.sight is not None
    wrong = replace(one, sight=replace(one.sight, places=one.sight.places.flip(1)))
    try:
        found = [shared.hidden(rows).flatten(0, 1)[rows.positions].to(shared.loss_dtype) for rows in (two, one, wrong)]
    except torch.OutOfMemoryError:
        raise
    except (AttributeError, TypeError, ValueError, LookupError, RuntimeError):
        return False
    alone, together, misplaced = found
    # A model that hears no places (ALiBi) can be near in 16 bits. Relative to how tokens differ, since one large number
    # would hide the rest: SmolLM2 in bf16 has 0.02; with wrong places 0.6.
    error = float(((alone - together).abs() / alone.std(dim=0).clamp_min(1e-9)).median(dim=1).values.max())
    return not together.equal(misplaced) and error <= 3 * _CHECK_TOLERANCE.get(shared.dtype, 0.05)
