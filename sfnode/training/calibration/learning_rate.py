"""Find the learning rate that suits a basis and its model, by trying steps on some examples."""

from collections.abc import Callable, Sequence

import torch

from protocol.run import TensorSpec
from protocol.subspace import BasisContent
from sfnode.training.dense_estimate import dense_term, hear
from sfnode.training.estimator import EVALUATION_TOKENS
from sfnode.training.model import perturbed
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import Example, TaskData, chunks_of

Tensors = Sequence[TensorSpec]
Theory = tuple[float, float]
Progress = Callable[[int, int], None]  # called with the examples that are done, and how many there are
_ARRIVES = (0.2, 2.0)  # least and largest share of a move that later layers leave
_SMALL = 0.05  # nats by which a small step lowers the loss, if all of it arrives
_SHARES = tuple(1 / parts for parts in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256))  # of the rate, that are tried
_OF_CHOICES = (8.0, 4.0, 2.0)  # that are tried before, where examples have several candidates
_TINY = 1e-12
_PARTS_MAX, _PART_EXAMPLES = 4, 64
_TRIAL_STEPS = 6  # as long as those of very many rows
_RISE_MAX = 0.25  # of a part's loss at first, from one of these steps to the next: parts differ by chance


def trial_passes(data: TaskData) -> int:
    """Return how many passes of an example it takes to find a rate, if it need not be halved."""
    parts, steps, _ = _steps_of(data)
    return sum(map(len, parts)) + (2 + steps) * len(parts[0])


def _steps_of(data: TaskData) -> tuple[list[tuple[Example, ...]], int, float]:
    """Return the parts of the examples, the steps that are tried on them, and the length of each in whole ones."""
    count = min(_PARTS_MAX, -(-len(data.examples) // _PART_EXAMPLES))
    parts = [data.examples[part::count] for part in range(count)]
    # A model's own answers are likely already, so their loss says little
    return (parts[:1], 1, 0.5) if data.draws_answers else (parts, _TRIAL_STEPS, 1.0)


def suited_rate(
    shared: SharedModel, tensors: Tensors, content: BasisContent, data: TaskData, theory: Theory, on_progress: Progress
) -> tuple[float, float, int]:
    """Return the rate that suits the model, its share of what theory allows, and the rows passed forward.

    ``theory``: the rate by it, and the size of the stream for which gradients are measured.

    Later layers add to a move or undo a part of it: small steps down and up the gradient of some examples show how much
    of it arrives, and the rate is divided by that. In 16 bits a pass without a step would round otherwise, so it does
    not stand for either. Then the rate is lowered until the loss does not leap in a few steps and is lower after them.
    Each step is down the gradient of a part of the examples, and looked at on the next part: on the same part the loss
    falls even where a run diverges. Where rows that look alike have a few of K labels, it bends up to K / 2 times more
    than in theory, and by the candidates of choices less. Where labels are hard to learn, the gradient of so few rows
    is mostly noise, and steps may be worse at first: a run takes more rows for steps of this length.
    """
    (rate, size), (parts, steps, share) = theory, _steps_of(data)
    rows, done, planned = 0, 0, trial_passes(data)
    target_Hr = shared.side(content.target, content.target_exp).to(shared.loss_dtype)
    u = [perturbed.with_spare_row(shared.side(each.u, each.u_exp)) for each in content.tensors]
    v = [shared.side(each.v, each.v_exp) for each in content.tensors if each.v is not None]
    names = [tensor.name for tensor in tensors]

    def passed(part: Sequence[Example], core: Sequence[torch.Tensor]) -> tuple[float, list[torch.Tensor]]:
        """Return the mean loss at this core, and its gradient by the core; no core: at the model alone."""
        nonlocal rows, done
        moved = zip(tensors, u, v, core, strict=False)
        terms = {tensor.name: dense_term(tensor, *at) for tensor, *at in moved if at[2].any()}  # a layer may be dead
        batches = [shared.batch(data, examples) for examples in chunks_of(part, EVALUATION_TOKENS)]
        heard = [hear(shared, names, terms, batch, data.label_tokens, target_Hr) for batch in batches]
        rows, done = rows + sum(len(batch.tokens) for batch in batches), done + len(part)
        on_progress(done, planned)
        gradient = [
            sum(((each.d.T @ (each.inputs[place] @ side).to(each.d.dtype)) for each in heard), torch.zeros(()))
            for place, side in enumerate(v)
        ]
        return sum(float(each.loss.sum()) for each in heard) / len(part), [each / len(part) for each in gradient]

    def is_stable(rate: float) -> bool:
        core, gradient, loss, lowest = [torch.zeros_like(each) for each in down], down, 1.0, 1.0
        for step in range(1, steps + 1):
            core = [at - share * rate * slope for at, slope in zip(core, gradient, strict=True)]
            loss, gradient = passed(parts[step % len(parts)], core)
            loss /= max(first[step % len(parts)], _TINY)
            if not loss < lowest + _RISE_MAX:  # nor a number
                return False
            lowest = min(lowest, loss)
        return loss < 1.0

    first, (down, *_) = zip(*(passed(part, ()) for part in parts), strict=True)
    small = _SMALL / max(sum(float(each.square().sum()) for each in down) / size, _TINY)
    up, under = (passed(parts[0], [sign * small * each for each in down])[0] for sign in (1, -1))
    fall = (up - under) / 2
    rate /= min(max(fall / _SMALL, _ARRIVES[0]), _ARRIVES[1])
    is_choice = any(len(example.candidates) > 1 for example in data.examples)
    for kept in (*_OF_CHOICES * is_choice, *_SHARES[:-1]):
        if is_stable(kept * rate):
            return kept * rate, kept, rows
        planned = done + steps * len(parts[0])
    return _SHARES[-1] * rate, _SHARES[-1], rows
