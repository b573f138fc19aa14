"""Find a start and a basis by a short first-order run of the owner: low-rank adapters on every trained matrix.

LoRA (Hu et al., arXiv 2106.09685) is trained by AdamW on the owner's own examples. The start is where it ends, or half
the way there, if held-back examples say that it helps. The leading direction of each matrix's move is the run's number
for that matrix. This needs the memory of back-propagation, once, and works for every kind of task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor, nn

from protocol.crypto import hashing
from protocol.errors import OperatorError
from protocol.run import TensorKind
from protocol.subspace import signs
from sfnode.training.calibration.calibration import Calibration, hold_back, judged
from sfnode.training.calibration.entries import Column, as_start, packed
from sfnode.training.calibration.found_basis import NOT_FINITE, FoundBasis, Judged
from sfnode.training.calibration.residual_stream import is_linear, is_stored_transposed, sizes_of
from sfnode.training.model import places
from sfnode.training.task import Example

_RANK: Final = 8  # as in MeZO's comparison (Malladi et al., arXiv 2305.17333)
_SCALE: Final = 2.0  # alpha / rank, from the same source
_RATE: Final = 1e-3  # falling linearly to zero
_ROWS_AT_ONCE: Final = 16  # for one back-propagation: as many as in a step
_HELD_SHARE: Final = 8  # one of this many examples is held back
_HELD_MAX: Final = 64
LENGTHS: Final = (0.0, 0.5, 1.0)  # shares of the way to where the training ended; zero is the model alone


class _Adapter:
    """Adds ``2 B A^T x`` to the output of a linear layer; A: [I, r], B: [O, r], fp32, B zero at first."""

    def __init__(self, index: int, module: nn.Module, sizes: tuple[int, int], device: torch.device) -> None:
        inputs, outputs = sizes
        drawn = signs(
            hashing.key_of("sfnode/calibration/1", hashing.u32(index), hashing.u32(2)), inputs * _RANK, 0
        ).reshape(inputs, _RANK)
        self.index = index
        self.is_transposed = is_stored_transposed(module)
        self.length = 1.0
        self.a = (torch.from_numpy(drawn).to(device, torch.float32) / inputs**0.5).requires_grad_(True)
        self.b = torch.zeros(outputs, _RANK, device=device, requires_grad=True)
        self._hook = module.register_forward_hook(self._add)

    def _add(self, _module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor:
        a, b = self.a.to(output.dtype), self.b.to(output.dtype)
        result: Tensor = output + (arguments[0] @ a) @ (b.T * (_SCALE * self.length))
        return result

    def remove(self) -> tuple[Tensor, Tensor]:
        """Remove the adapter; return its product, left [., r] and right [., r], in the order of the stored weight."""
        self._hook.remove()
        outputs, inputs = (self.b.detach() * _SCALE).cpu(), self.a.detach().cpu()
        return (inputs, outputs) if self.is_transposed else (outputs, inputs)


def apart(examples: Sequence[Example]) -> tuple[list[Example], list[Example]]:
    """Split examples into those to train on, and some from all over them that judge; none if there are under 8."""
    return hold_back(examples, most=_HELD_MAX, share=_HELD_SHARE)


def trajectory_basis(
    calibration: Calibration, batches: Sequence[Sequence[Example]], held: Sequence[Example], rank: int
) -> FoundBasis:
    """Take one step of AdamW on each of ``batches``, and return the start and basis that the move gives.

    Tensors that are not weights of linear layers stay unchanged.

    Memory: what back-propagation through 16 rows takes, or through the rows of one example if it has more; and adapters
    with their moments.

    Args:
        held: other examples, which judge `LENGTHS`; without any the run starts where the training ended.

    Raises:
        OperatorError: none of the tensors is the weight of a linear layer, or the model overflows.
    """
    tensors, shared = calibration.tensors, calibration.shared
    known = {name: place for name, place in places(shared.model).items() if is_linear(place)}
    adapters = [
        _Adapter(index, known[tensor.name].module, sizes_of(known[tensor.name]), shared.device)
        for index, tensor in enumerate(tensors)
        if tensor.kind is TensorKind.MATRIX and tensor.name in known
    ]
    if not adapters:
        raise OperatorError("--source trajectory: no linear layer is trained; use --source gradient")

    try:
        _train(adapters, batches, lambda examples: calibration.scores(examples).loss.sum())
        found: dict[float, Judged] = {}
        for length in LENGTHS if held else ():
            for adapter in adapters:
                adapter.length = length
            found[length] = judged(calibration.judge(held), is_completion=held[0].is_completion)
    finally:
        moved = {adapter.index: adapter.remove() for adapter in adapters}
    # B is zero at first, so an adapter without a gradient has moved nothing
    columns = [_leading(index, *sides) for index, sides in moved.items() if sides[0].any() and sides[1].any()]
    length = min(found, key=lambda each: found[each].loss, default=1.0)
    start = as_start(tensors, {index: (left * length, right) for index, (left, right) in moved.items()})
    return replace(
        packed(tensors, columns, rank),
        start=start if length else None,
        of_start=found.get(length) if length else None,
        of_model=found.get(0.0),
    )


def _train(
    adapters: Sequence[_Adapter], batches: Sequence[Sequence[Example]], loss_of: Callable[[Sequence[Example]], Tensor]
) -> None:
    """Train the adapters, one step a batch. ``loss_of`` returns the sum over examples; OperatorError: not finite."""
    parameters = [side for adapter in adapters for side in (adapter.a, adapter.b)]
    optimiser = torch.optim.AdamW(parameters, lr=_RATE, weight_decay=0.0)
    falling = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, total_iters=len(batches))
    for batch in batches:
        optimiser.zero_grad()
        for part in _parts(batch):
            loss = loss_of(part)
            if not loss.isfinite():
                raise OperatorError(NOT_FINITE)
            torch.autograd.backward(loss / len(batch))
        optimiser.step()
        falling.step()


def _parts(batch: Sequence[Example]) -> list[list[Example]]:
    """Split a batch into parts of at most `_ROWS_AT_ONCE` rows, or of one example."""
    parts: list[list[Example]] = [[]]
    for example in batch:
        if parts[-1] and sum(each.rows for each in parts[-1]) + example.rows > _ROWS_AT_ONCE:
            parts.append([])
        parts[-1].append(example)
    return parts


def _leading(index: int, left: Tensor, right: Tensor) -> Column:
    """Return the leading singular direction of ``left right^T``, with its singular value as the length of its left."""
    # The QR factors of the thin sides leave a decomposition of r x r only
    left_q, left_r = torch.linalg.qr(left)
    right_q, right_r = torch.linalg.qr(right)
    small = torch.linalg.svd(left_r @ right_r.T)
    return Column(index=index, left=left_q @ small.U[:, 0] * small.S[0], right=right_q @ small.Vh[0])
