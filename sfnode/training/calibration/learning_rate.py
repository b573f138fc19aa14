"""Find the learning rate that suits a basis and its model, by trying steps on some examples."""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from protocol.run import TensorSpec
from protocol.subspace import BasisContent
from sfnode.training.dense_estimate import Heard, dense_term, hear
from sfnode.training.estimator import EVALUATION_TOKENS
from sfnode.training.model import perturbed
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import TaskData, batch_of, chunks_of

_ARRIVES: Final = (0.2, 2.0)  # least and largest share of a move that later layers leave
_TRIAL_SHARE: Final = 0.5  # of the rate: as much moves the core after the messages of 128 rows (`noise_rows`)
_SMALL: Final = 0.05  # nats by which a small step lowers the loss, if all of it arrives
_HALVINGS_MAX: Final = 8
PASSES_MIN: Final = 4  # of the examples


def suited_rate(
    shared: SharedModel, tensors: Sequence[TensorSpec], content: BasisContent, data: TaskData, rate: float, size: float
) -> tuple[float, int]:
    """Return the rate that suits the model, and how many passes of the examples that took. ``rate``: in theory.

    Later layers add to a move or undo a part of it: small steps down and up the gradient of the examples show how much
    of it arrives, and the rate is divided by that. In 16 bits a pass without a step would round otherwise, so it does
    not stand for either. Then the rate is halved until a step lowers their loss.
    """
    batches = [batch_of(data, examples, 1, shared.device) for examples in chunks_of(data.examples, EVALUATION_TOKENS)]
    count, names = len(data.examples), [tensor.name for tensor in tensors]
    u_Hr, *v = (
        torch.from_numpy(entries).to(shared.device, shared.dtype) * 2.0**exp
        for entries, exp in zip((content.u, *content.v), (content.u_exp, *content.v_exps), strict=True)
    )
    u = perturbed.with_spare_row(u_Hr)

    def passed(amount: float, down: Sequence[Tensor]) -> tuple[float, list[Heard]]:
        moves = zip(tensors, v, down, strict=False)  # no moves at first
        terms = {tensor.name: dense_term(tensor, u, side, -amount * core) for tensor, side, core in moves}
        u_wide = u_Hr.to(shared.loss_dtype)
        heard = [hear(shared, names, terms, rows, data.label_tokens, u_wide) for rows in batches]
        return sum(float(each.loss.sum()) for each in heard) / count, heard

    before, heard = passed(0.0, ())
    down = [
        sum((each.d.T @ (each.inputs[place] @ side).to(each.d.dtype) / count for each in heard), torch.zeros(()))
        for place, side in enumerate(v)
    ]
    steepness = max(sum(float(each.square().sum()) for each in down) / size, 1e-12)
    fall = (passed(-_SMALL / steepness, down)[0] - passed(_SMALL / steepness, down)[0]) / 2
    rate /= min(max(fall / _SMALL, _ARRIVES[0]), _ARRIVES[1])
    for halvings in range(_HALVINGS_MAX):
        if passed(rate * _TRIAL_SHARE, down)[0] < before:
            return rate, halvings + PASSES_MIN
        rate /= 2
    return rate, _HALVINGS_MAX + PASSES_MIN - 1
