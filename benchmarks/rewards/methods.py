"""How a model learns from rewards: the product's own clients, LoRA by back-propagation, evolution strategies.

Each method trains a model of its own, and is looked at between its rounds. All check the same answers by the same rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from peft import LoraConfig, inject_adapter_in_model
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from benchmarks.learn.clients import Clients
from benchmarks.learn.plain import LORA_ALPHA, LORA_RANK
from benchmarks.learn.trials import NetworkTrial
from benchmarks.rewards.looks import Costs, Course, Watch
from protocol.errors import NumericError
from protocol.run import TaskSpec
from sfnode.training.answers import Answers
from sfnode.training.model import layer_probe
from sfnode.training.reward_estimate import advantages_of, checked_answers, judge_of, writer_of
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import Example, TaskData

_GRADIENT_NORM_MAX = 1.0  # usual where advantages are steep
_TEXTS_AT_ONCE = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What a method gets: a model of its own, a task, and when to look.

    Attributes:
        plain: tokens of the plain texts.
        rounds: of training; looks: after which of them.
        answers: in a round.
    """

    title: str
    model: PreTrainedModel
    spec: TaskSpec
    data: TaskData
    plain: Sequence[tuple[int, ...]]
    seed: int
    rounds: int
    looks: frozenset[int]
    answers: int
    card: str

    def watch(self, shared: SharedModel) -> Watch:
        """Begin a course of this model."""
        return Watch(self.title, shared, self.data, self.plain, self.card)


def train_network(bench: Bench) -> Course:
    """Let clients in step measure their own answers; their messages are added as integers, as nodes add them."""
    recipe = NetworkTrial(
        steps=bench.rounds,
        tune_steps=0,
        rates=(),
        core="dense",
        rows=bench.spec.batch_rows,
        clients=bench.answers // bench.spec.batch_rows,
    )
    costs = Costs(bench.model)
    with costs.counted():  # the basis, too
        clients = Clients(recipe, bench.spec, bench.data, bench.model, rate=None, seed=bench.seed)
    watch = bench.watch(clients.shared)
    rows_spent = clients.train()
    for number in range(bench.rounds + 1):
        with costs.counted():
            spent = next(rows_spent)
        if number in bench.looks:
            watch.look(number, spent, costs, clients.terms(number))
    return watch.course


def train_lora(bench: Bench, rate: float = 3e-4) -> Course:
    """Move an adapter of all linear layers by AdamW, along the gradient of answers with the same advantages."""
    torch.manual_seed(bench.seed)
    inject_adapter_in_model(LoraConfig(r=LORA_RANK, lora_alpha=LORA_ALPHA, target_modules="all-linear"), bench.model)
    parameters = [parameter for parameter in bench.model.parameters() if parameter.requires_grad]
    for parameter in parameters:
        parameter.data = parameter.data.float()
    optimiser = torch.optim.AdamW(parameters, lr=rate, weight_decay=0.0)
    shared = SharedModel(bench.model)
    costs, watch, chance = Costs(bench.model), bench.watch(shared), np.random.default_rng(bench.seed)
    watch.look(0, 0, costs, {})
    for number in range(1, bench.rounds + 1):
        with costs.counted():
            optimiser.zero_grad()
            _add_gradient(shared, bench.data, _drawn(bench, chance), chance)
            nn.utils.clip_grad_norm_(parameters, _GRADIENT_NORM_MAX)
            optimiser.step()
        if number in bench.looks:
            watch.look(number, number * bench.answers, costs, {})
    return watch.course


def _drawn(bench: Bench, chance: np.random.Generator) -> list[Example]:
    """The prompts of a round."""
    prompts = bench.answers // judge_of(bench.data).rule.samples
    return [bench.data.examples[index] for index in chance.integers(len(bench.data.examples), size=prompts).tolist()]


def _add_gradient(shared: SharedModel, data: TaskData, prompts: Sequence[Example], chance: np.random.Generator) -> None:
    rule = judge_of(data).rule
    draws = chance.random((len(prompts), rule.samples, rule.tokens))
    written = _written(shared, data, prompts, draws)
    try:
        better = advantages_of(np.array(_rewards(data, prompts, written)).reshape(len(prompts), rule.samples))
    except NumericError:
        return  # nothing to learn from these answers
    advantages = torch.from_numpy(better).float().to(shared.device)
    texts = [(prompts[number // rule.samples].tokens, tokens) for number, tokens in enumerate(written.tokens)]
    for first in range(0, len(texts), _TEXTS_AT_ONCE):
        chunk = slice(first, first + _TEXTS_AT_ONCE)
        losses_N = _mean_losses(shared, texts[chunk])
        torch.autograd.backward((losses_N * advantages[chunk]).sum() / len(texts))


def _rewards(data: TaskData, prompts: Sequence[Example], written: Answers) -> list[float]:
    return [reward for _, reward in checked_answers(judge_of(data), prompts, written)]


def _written(
    shared: SharedModel, data: TaskData, prompts: Sequence[Example], draws: NDArray[np.float64] | None
) -> Answers:
    return writer_of(shared, data, {}).write([example.tokens for example in prompts], draws)


def _mean_losses(shared: SharedModel, texts: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> Tensor:
    """The mean loss of each answer's tokens after its prompt."""
    width = max(len(prompt) + len(answer) for prompt, answer in texts)
    tokens, targets = [], []
    for prompt, answer in texts:
        rest = width - len(prompt) - len(answer)
        tokens.append([*prompt, *answer, *[0] * rest])
        targets.append([*[-100] * len(prompt), *answer, *[-100] * rest][1:])
    targets_NT = torch.tensor(targets, device=shared.device)
    is_learnt_NT = targets_NT >= 0
    hidden_NTH = layer_probe.hidden_states(shared.model, torch.tensor(tokens, device=shared.device))[:, :-1]
    logits_MV = functional.linear(hidden_NTH[is_learnt_NT], shared.head.weight).float()  # of answers' tokens alone
    loss_M = functional.cross_entropy(logits_MV, targets_NT[is_learnt_NT], reduction="none")
    loss_NT = hidden_NTH.new_zeros(targets_NT.shape, dtype=loss_M.dtype).masked_scatter(is_learnt_NT, loss_M)
    return loss_NT.sum(dim=1) / is_learnt_NT.sum(dim=1).clamp_min(1)


def train_evolution(bench: Bench, rate: float = 0.01, sigma: float = 0.02, directions: int = 8) -> Course:
    """Move all linear layers along seeded directions of rank one, by how much better the answers are on either side.

    A round's answers are spread over both sides of its directions; each is the likeliest one.
    """
    shared = SharedModel(bench.model)
    costs, watch, chance = Costs(bench.model), bench.watch(shared), np.random.default_rng(bench.seed)
    layers = [each for each in layer_probe.body_of(bench.model).modules() if isinstance(each, nn.Linear)]
    held = [layer.weight.data.float() for layer in layers]
    prompts = max(1, bench.answers // (2 * directions))
    watch.look(0, 0, costs, {})
    for number in range(1, bench.rounds + 1):
        with costs.counted(), torch.inference_mode():
            seeds = [(bench.seed << 40) + (number << 16) + direction for direction in range(directions)]
            chosen = [bench.data.examples[index] for index in chance.integers(len(bench.data.examples), size=prompts)]
            sides = [
                [
                    _rewarded(shared, bench.data, chosen, partial(_moved, layers, held, seed, side * sigma))
                    for side in (1, -1)
                ]
                for seed in seeds
            ]
            better = np.array([plus - minus for plus, minus in sides])
            better /= float(better.std()) + 1e-3  # no direction counts where all were alike
            for seed, amount in zip(seeds, better.tolist(), strict=True):
                held = _stepped(layers, held, seed, rate * amount / directions)
            _put(layers, held)
        if number in bench.looks:
            watch.look(number, number * 2 * directions * prompts, costs, {})
    return watch.course


def _rewarded(shared: SharedModel, data: TaskData, prompts: Sequence[Example], put: partial[None]) -> float:
    put()
    return float(np.mean(_rewards(data, prompts, _written(shared, data, prompts, None))))


def _moved(layers: Sequence[nn.Linear], held: Sequence[Tensor], seed: int, amount: float) -> None:
    _put(layers, _stepped(layers, held, seed, amount))


def _stepped(layers: Sequence[nn.Linear], held: Sequence[Tensor], seed: int, amount: float) -> list[Tensor]:
    """The weights after a step along the direction of ``seed``."""
    generator = torch.Generator(device=held[0].device).manual_seed(seed)
    found = []
    for layer, weight in zip(layers, held, strict=True):
        a = torch.randn(layer.out_features, generator=generator, device=weight.device)
        b = torch.randn(layer.in_features, generator=generator, device=weight.device)
        found.append(torch.addr(weight, a, b, alpha=amount))
    return found


def _put(layers: Sequence[nn.Linear], weights: Sequence[Tensor]) -> None:
    for layer, weight in zip(layers, weights, strict=True):
        layer.weight.data.copy_(weight)


def ask_alone(bench: Bench) -> Course:
    """Look at the model as it is; then as good as the best of several drawn answers to each held-out prompt."""
    shared = SharedModel(bench.model)
    costs, watch = Costs(bench.model), bench.watch(shared)
    watch.look(0, 0, costs, {})
    rule, chance = judge_of(bench.data).rule, np.random.default_rng(bench.seed)
    examples = bench.data.evaluation_examples
    best: list[float] = []
    with costs.counted():
        for first in range(0, len(examples), _TEXTS_AT_ONCE // rule.samples):
            chunk = examples[first : first + _TEXTS_AT_ONCE // rule.samples]
            draws = chance.random((len(chunk), rule.samples, rule.tokens))
            rewards = _rewards(bench.data, chunk, _written(shared, bench.data, chunk, draws))
            best += np.array(rewards).reshape(len(chunk), -1).max(axis=1).tolist()
    course = watch.course
    course.rounds.append(1)
    course.answers.append(len(examples) * rule.samples)
    course.tokens.append(costs.tokens)
    course.seconds.append(round(costs.seconds, 1))
    course.strict.append(round(sum(each >= 1.0 for each in best) / len(best), 4))
    course.reward.append(round(sum(best) / len(best), 4))
    course.plain.append(course.plain[0])
    course.sample.append("")
    return course
