"""What a step and an update cost, measured against a bare forward pass and against MeZO. Behind `sfnode bench`.

Models have the shape of a published one and random weights, so nothing is downloaded. Alternatives are timed in turn
within the same run, because a shared machine changes its pace between runs.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import OPTConfig, OPTForCausalLM, PreTrainedModel

from protocol.bases import Bases
from protocol.coefficients import CoefficientLayout, Coefficients
from protocol.envelope import Envelope, EnvelopeCodec
from protocol.errors import OperatorError
from protocol.keys import Signer
from protocol.manifest import Manifest, TensorSpec, checked
from protocol.structure import to_plain
from protocol.subspace import direction_factors, seed_of
from sfnode.training.mezo import mezo_step, perturb
from sfnode.training.models import choose_device, choose_dtype
from sfnode.training.session import Session, SharedModel, live_terms
from sfnode.training.tasks import Example, TaskData, row_batch
from sfnode.training.tensors import trainable_tensors

# name -> (hidden, layers, heads, ffn) of OPT (Zhang et al., arXiv 2205.01068, table 1)
SHAPES: Final = {
    "opt-tiny": (64, 2, 2, 256),
    "opt-125m": (768, 12, 12, 3_072),
    "opt-1.3b": (2_048, 24, 32, 8_192),
    "opt-2.7b": (2_560, 32, 32, 10_240),
    "opt-6.7b": (4_096, 32, 32, 16_384),
}
VOCABULARY: Final = 50_272
POSITIONS: Final = 2_048
SIGNER: Final = Signer(b"benchmark".ljust(32, b"."))
REPEATS: Final = 9
SLOW_REPEATS: Final = 3
DENSE_UPDATES: Final = 3  # a dense update of OPT-125m takes a second; the rest is a product


def bench_step(
    shape: str, *, rows: int, tokens: int, dtype: str, repeats: int = REPEATS, device: str = "auto"
) -> dict[str, object]:
    """One step (both signs, ``rows`` rows each) against a bare forward pass over the same rows, and MeZO's step.

    The run trains all linear layers at rank 32 with 8 directions (fewer if ``rows`` is no multiple), its epoch under
    way has coefficients in every tensor, and an earlier epoch is folded.

    Returns:
        ratio_to_forward: step / forward of the unmodified model's body, without any head (the step's own head and loss
            count against it);
        ratio_to_full_forward: step / forward with logits at every token, as a plain call computes them;
        ratio_to_mezo: MeZO's in-place step on the same tensors / step.
        These are ratios of medians. Besides: ratio_of_shortest (step / forward, the best case), seconds, spreads.
    """
    where = choose_device(device)
    model = random_model(shape, where, choose_dtype(dtype))
    plain = shared_copy(model)
    manifest = bench_manifest(trainable_tensors(model), rows=rows, tokens=tokens)
    session = Session(SharedModel(model), Bases(manifest), _random_data(rows, tokens))
    for epoch in (0, 1):
        session.set_coefficients(epoch, _some_coefficients(manifest, epoch))
    step = manifest.method.epoch_steps  # the first of epoch 1
    tokens_NT = torch.tensor([example.tokens for example in session.data.examples] * 2, device=where)
    parameters = [plain.get_parameter(tensor.name).detach().clone() for tensor in manifest.tensors]
    mezo_model = shared_copy(model)
    for tensor, parameter in zip(manifest.tensors, parameters, strict=True):
        mezo_model.get_parameter(tensor.name).data = parameter

    with torch.inference_mode():
        mezo_shared, batch = SharedModel(mezo_model), row_batch(session.data.examples, 0, where)

        def loss() -> Tensor:
            return functional.cross_entropy(mezo_shared.label_logits(batch, session.data.label_tokens), batch.labels)

        actions: dict[str, Callable[[], object]] = {
            "step": lambda: session.estimate(1, step),
            "forward": lambda: plain.base_model(input_ids=tokens_NT, use_cache=False),
        }
        slow: dict[str, Callable[[], object]] = {
            "full_forward": lambda: plain(input_ids=tokens_NT, use_cache=False),
            "mezo": lambda: mezo_step(parameters, loss, 1, manifest.epsilon, 1e-6),
        }
        seconds = timed_in_turn(actions, where, repeats) | timed_in_turn(slow, where, min(repeats, SLOW_REPEATS))
    best = {name: min(values) for name, values in seconds.items()}
    middle = {name: median(values) for name, values in seconds.items()}
    return {
        "shape": shape,
        "rows": rows,
        "tokens": tokens,
        "dtype": dtype,
        "device": where.type,
        "threads": torch.get_num_threads(),
        "trained_parameters": sum(parameter.numel() for parameter in parameters),
        "ratio_to_forward": middle["step"] / middle["forward"],
        "ratio_to_full_forward": middle["step"] / middle["full_forward"],
        "ratio_to_mezo": middle["mezo"] / middle["step"],
        "ratio_of_shortest": best["step"] / best["forward"],
        "seconds": middle,
        "seconds_shortest": best,
        "spread": {name: (max(values) - min(values)) / middle[name] for name, values in seconds.items()},
        "forward_is": "the unmodified model over the same rows, without its head",
        "mezo_is": "in place on the same tensors, two passes over half the rows each, logits of label words only",
    }


def bench_apply(shape: str, *, updates: int, device: str = "auto") -> dict[str, object]:
    """From ``updates`` verified envelopes in memory (one canonical direction each) to what the next step adds.

    Returns:
        seconds: median time to sum them into the coefficients and make the next forward pass's terms;
        ratio_to_dense: MeZO's dense updates of the same weights / seconds, measured on a few and scaled.
    """
    where = choose_device(device)
    model = random_model(shape, where, torch.float32)
    manifest = bench_manifest(trainable_tensors(model), rows=16, tokens=64, directions=1)
    shared = SharedModel(model)
    envelopes = _envelopes(manifest, updates)
    factors = direction_factors(manifest, 1)
    parameters = [model.get_parameter(tensor.name).detach().clone() for tensor in manifest.tensors]

    def apply() -> None:
        coefficients = Coefficients(manifest)
        coefficients.add(envelopes)
        live_terms(shared, Bases(manifest), 0, coefficients.flat(0), factors)

    def dense() -> None:
        for seed in range(DENSE_UPDATES):
            perturb(parameters, seed, 1e-9)

    with torch.inference_mode():
        seconds = timed_in_turn({"apply": apply}, where, REPEATS) | timed_in_turn({"dense": dense}, where, 1)
    apply_seconds = median(seconds["apply"])
    dense_seconds = median(seconds["dense"]) * updates / DENSE_UPDATES
    return {
        "shape": shape,
        "updates": updates,
        "device": where.type,
        "threads": torch.get_num_threads(),
        "seconds": apply_seconds,
        "seconds_max": max(seconds["apply"]),
        "microseconds_per_update": 1e6 * apply_seconds / updates,
        "dense_seconds": dense_seconds,
        "ratio_to_dense": dense_seconds / apply_seconds,
        "dense_is": f"MeZO's in-place update of the same weights, measured on {DENSE_UPDATES} and scaled",
    }


def timed_in_turn(
    actions: dict[str, Callable[[], object]], device: torch.device, repeats: int
) -> dict[str, list[float]]:
    """Seconds of each action, ``repeats`` times each, taking turns after one untimed round."""
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(repeats + 1):
        for name, action in actions.items():
            start = time.perf_counter()
            action()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def random_model(shape: str, device: torch.device, dtype: torch.dtype) -> PreTrainedModel:
    """An OPT of the given shape with random weights; OperatorError for an unknown shape."""
    if shape not in SHAPES:
        raise OperatorError(f"shape {shape!r}: known are {', '.join(SHAPES)}")
    hidden, layers, heads, ffn = SHAPES[shape]
    config = OPTConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        word_embed_proj_dim=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        ffn_dim=ffn,
        max_position_embeddings=POSITIONS,
        dtype=dtype,
    )
    model: Any = OPTForCausalLM(config)  # its `to` carries no types
    result: PreTrainedModel = model.to(device, dtype).eval().requires_grad_(False)
    return result


def shared_copy(model: PreTrainedModel) -> PreTrainedModel:
    """Another model object that holds the very same parameters: modules can be changed without touching ``model``."""
    return copy.deepcopy(model, {id(parameter): parameter for parameter in model.parameters()})


def bench_manifest(tensors: Sequence[TensorSpec], *, rows: int, tokens: int, directions: int = 8) -> Manifest:
    """A run at rank 32 with canonical cores and raw scalars."""
    while rows % directions:
        directions //= 2
    file = {"name": "none", "sha256": "0" * 64}
    return checked(
        {
            "format": 1,
            "name": "bench",
            "owner": SIGNER.author.hex(),
            "model": {"id": "local:bench", "revision": "", "weights": [file], "tokenizer": [file]},
            "tensors": [to_plain(tensor, as_rows=False) for tensor in tensors],
            "task": {
                "kind": "classification",
                "template": "{text}",
                "completion": "",
                "objective": "loss",
                "label_words": ["a", "b"],
                "data": "private",
                "data_sha256": "",
                "max_tokens": max(tokens, 4),
                "batch_rows": rows,
            },
            "method": {
                "rank": 32,
                "epoch_steps": 1 << 10,
                "basis": "random",
                "basis_sha256": "",
                "basis_unit_exp": 0,
                "basis_max": 1,
                "sides": 2,
                "shares": 1,
                "core": "canonical",
                "scalar": "raw",
                "epsilon_exp": -10,
                "directions": directions,
                "local_steps": 1,
                "alpha_exp": -30,
                "quantum_exp": -10,
                "clip": 1 << 10,
            },
            "schedule": {"kind": "constant", "weight_start": 1, "weight_end": 1},
            "steps": 1 << 12,
            "staleness": 1,
            "admission": "open",
            "authors_max": 1 << 10,
        }
    )


def _random_data(rows: int, tokens: int) -> TaskData:
    generator = np.random.default_rng(0)
    drawn = generator.integers(4, VOCABULARY, size=(rows, tokens)).tolist()
    examples = tuple(Example(tokens=tuple(line), label=index % 2) for index, line in enumerate(drawn))
    return TaskData(label_tokens=(4, 5), examples=examples)


def _some_coefficients(manifest: Manifest, epoch: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.random.default_rng(epoch).integers(-1_000, 1_000, size=CoefficientLayout(manifest).size)


def _envelopes(manifest: Manifest, count: int) -> list[Envelope]:
    """``count`` updates of as many steps, as they are after verification (the signature is not looked at again)."""
    record_bytes = EnvelopeCodec(manifest).record_bytes
    per_epoch = manifest.method.epoch_steps
    return [
        Envelope(
            author=SIGNER.author,
            step=index % per_epoch,
            seed=seed_of(manifest.run_id, SIGNER.author, index),
            scalars=(index % 2_001 - 1_000,),
            record=bytes(record_bytes),
        )
        for index in range(count)
    ]
