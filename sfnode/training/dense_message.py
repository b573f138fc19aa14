"""Make a node's message of a dense core: from labels, texts or rewards, with noise if that is wanted (SPEC 5.6)."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from protocol.run import TaskKind
from protocol.state import CoefficientLayout, Int64Array
from protocol.subspace import Bases, answer_draws, example_indices, quantise_dense
from sfnode.privacy import NoisySum, length_max
from sfnode.training.dense_estimate import mean_gradient, row_gradients
from sfnode.training.reward_estimate import judge_of, reward_gradient
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import Example, TaskData, batch_of
from sfnode.worker_protocol import Estimated, NoiseConfig


@dataclass(frozen=True, slots=True)
class DenseMeasure:
    """Measures the rows of a step at one core. NumericError: a loss is not finite, or answers teach nothing."""

    shared: SharedModel
    bases: Bases
    data: TaskData
    core: Int64Array

    def message(self, seed: int, rows: int, noise: NoiseConfig | None) -> Estimated:
        """Measure the first ``rows`` examples of the batch of a step with this seed."""
        manifest = self.bases.manifest
        chosen = example_indices(manifest, seed, 0, len(self.data.examples))[:rows]
        examples = [self.data.examples[index] for index in chosen.tolist()]
        if manifest.task.kind is TaskKind.REWARD:
            return self._answered(examples, seed)
        if noise is not None:
            return self._noisy(examples, noise.multiplier)
        passed, d_Pr, h, losses = self._gradients(examples)
        message = quantise_dense(manifest.method, rows, mean_gradient(d_Pr, h, rows))
        return Estimated(scalars=message, loss=float(losses.mean()), rows=passed)

    def _answered(self, examples: Sequence[Example], seed: int) -> Estimated:
        """Measure by the rewards of answers, as many as there are ``examples``, to the first of these."""
        rule = judge_of(self.data).rule
        prompts = examples[: max(1, len(examples) // rule.samples)]
        count = len(prompts) * rule.samples
        draws = answer_draws(seed, count, rule.tokens).reshape(len(prompts), rule.samples, rule.tokens)
        mean, reward = reward_gradient(self.shared, self.bases, self.core, self.data, prompts, draws)
        message = quantise_dense(self.bases.manifest.method, count, mean)
        return Estimated(scalars=message, loss=1.0 - reward, rows=count)

    def _noisy(self, examples: Sequence[Example], multiplier: float) -> Estimated:
        """Measure with noise. Each row is passed alone: others' lengths would move its last digits."""
        method = self.bases.manifest.method
        numbers = CoefficientLayout(self.bases.manifest).size - 1  # one is the number of rows
        total = NoisySum(numbers, length_max(method, numbers))
        losses, passed = 0.0, 0
        for example in examples:
            count, d_Pr, h, loss = self._gradients([example])
            total.add(mean_gradient(d_Pr, h, 1))
            losses, passed = losses + float(loss.nan_to_num().sum()), passed + count
        message = quantise_dense(method, len(examples), total.noisy_mean(multiplier))
        return Estimated(scalars=message, loss=losses / len(examples), rows=passed)

    def _gradients(self, examples: Sequence[Example]) -> tuple[int, Tensor, list[Tensor], Tensor]:
        """Pass examples forward in one batch; return the rows passed, and what `row_gradients` returns."""
        batch = batch_of(self.data, examples, 1, self.shared.device)
        found = row_gradients(self.shared, self.bases, 0, self.core, batch, self.data.label_tokens)
        return len(batch.tokens), *found
