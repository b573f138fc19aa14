"""Find the learning rate that suits a basis and its model, by trying steps on some examples."""

from collections.abc import Sequence

import torch

from protocol.run import TensorSpec
from protocol.subspace import BasisContent
from sfnode.training.dense_estimate import dense_term, hear
from sfnode.training.estimator import EVALUATION_TOKENS
from sfnode.training.model import perturbed
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import TaskData, batch_of, chunks_of

_ARRIVES = (0.2, 2.0)  # least and largest share of a move that later layers leave
_SMALL = 0.05  # nats by which a small step lowers the loss, if all of it arrives
_HALVINGS_MAX = 8
_TRIAL_STEPS = 3  # as long as those of very many rows
_RISE_MAX = 0.02  # of the loss at first, from one of these steps to the next
PASSES_MIN = 4  # of the examples: three, and one step


def suited_rate(
    shared: SharedModel, tensors: Sequence[TensorSpec], content: BasisContent, data: TaskData, rate: float, size: float
) -> tuple[float, float, int]:
    """Return the rate that suits the model, its share of what noise alone would allow, and the passes of the examples.

    ``rate``: in theory.

    Later layers add to a move or undo a part of it: small steps down and up the gradient of the examples show how much
    of it arrives, and the rate is divided by that. In 16 bits a pass without a step would round otherwise, so it does
    not stand for either. Then the rate is halved until some steps lower the loss: where rows that look alike have a few
    of many labels, it bends more than in theory, up to half the number of labels times as much.
    """
    batches = [batch_of(data, examples, 1, shared.device) for examples in chunks_of(data.examples, EVALUATION_TOKENS)]
    count, names = len(data.examples), [tensor.name for tensor in tensors]
    u_Hr, *v = (
        torch.from_numpy(entries).to(shared.device, shared.dtype) * 2.0**exp
        for entries, exp in zip((content.u, *content.v), (content.u_exp, *content.v_exps), strict=True)
    )
    u, passes = perturbed.with_spare_row(u_Hr), 0
    # A model's own answers are likely already, so their loss says little: rewards keep the trial of one half step
    steps, share = (_TRIAL_STEPS, 1.0) if data.judge is None else (1, 0.5)

    def passed(core: Sequence[torch.Tensor]) -> tuple[float, list[torch.Tensor]]:
        """Return the mean loss at this core, and its gradient by the core; no core: at the model alone."""
        nonlocal passes
        passes += 1
        terms = {tensor.name: dense_term(tensor, u, *at) for tensor, *at in zip(tensors, v, core, strict=False)}
        heard = [hear(shared, names, terms, rows, data.label_tokens, u_Hr.to(shared.loss_dtype)) for rows in batches]
        gradient = [
            sum((each.d.T @ (each.inputs[place] @ side).to(each.d.dtype) / count for each in heard), torch.zeros(()))
            for place, side in enumerate(v)
        ]
        return sum(float(each.loss.sum()) for each in heard) / count, gradient

    def is_stable(rate: float) -> bool:
        core, gradient, lowest = [torch.zeros_like(each) for each in down], down, before
        for _ in range(steps):
            core = [at - share * rate * slope for at, slope in zip(core, gradient, strict=True)]
            loss, gradient = passed(core)
            if not loss < min(before, lowest + _RISE_MAX * before):  # nor a number
                return False
            lowest = min(lowest, loss)
        return True

    before, down = passed(())
    small = _SMALL / max(sum(float(each.square().sum()) for each in down) / size, 1e-12)
    fall = (passed([small * each for each in down])[0] - passed([-small * each for each in down])[0]) / 2
    rate /= min(max(fall / _SMALL, _ARRIVES[0]), _ARRIVES[1])
    kept = 1.0
    for _ in range(_HALVINGS_MAX):
        if is_stable(kept * rate):
            break
        kept /= 2
    return kept * rate, kept, passes
