"""Which weights stay on the device, and which wait elsewhere until their layer is computed.

The node's plan and the worker's work follow from the same sizes. For a card the other weights wait in main memory. If
the device computes in main memory, they wait in temporary files.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from protocol.errors import OperatorError
from sfnode.worker_protocol.memory_and_disk import free_disk, free_memory, temporary_folder
from sfnode.worker_protocol.training_config import PRECISIONS

ANSWER_TOKENS_AT_ONCE = 8_192  # of prompts and answers: bounds the memory of keys and values
_OWN_MEMORY = "cuda"  # the one kind of device that does not compute in main memory
_SMALLER = "use a smaller --dtype (bf16) or another model"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightPlan:
    """Says which weights wait, with sizes in bytes.

    Attributes:
        on_device: the most at a time: the weights that stay, and the largest that waits.
        waiting: names of the weights that wait.
        waiting_bytes: their total size.
        least: the least possible ``on_device``; None if nothing can wait (quantised weights).
    """

    on_device: int
    waiting: tuple[str, ...]
    waiting_bytes: int
    least: int | None

    def check_room(self, device: str, card_free: int | None) -> None:
        """Raise OperatorError if the weights are larger than the free room; ``card_free``: of a card's own memory."""
        memory = free_memory()
        free = memory if waits_in_files(device) else card_free
        if free is not None and self.on_device > free:
            raise OperatorError(self._too_large(device, free))
        if not self.waiting:
            return
        if waits_in_files(device):
            folder = temporary_folder()
            needed, free = self.waiting_bytes, free_disk(folder)
            what = f"wait on the disk of {folder} (TMPDIR names another)"
        else:  # all weights pass through main memory
            needed, free, what = self.waiting_bytes + self.on_device, memory, "be read into main memory"
        if free is not None and needed > free:
            raise OperatorError(
                f"{_mib(needed)} MiB of weights are to {what}, where {free >> 20} MiB are free: make room there, or "
                f"{_SMALLER}"
            )

    def _too_large(self, device: str, free: int) -> str:
        in_files = waits_in_files(device)
        where, others = ("in main memory", "on the disk") if in_files else ("on the card", "in main memory")
        text = f"the weights take {_mib(self.on_device)} MiB, and {free >> 20} MiB are free {where}: "
        if self.least is None:
            return text + "use another model or a larger machine"
        if self.least > free:
            return text + f"{_mib(self.least)} MiB must be there, and the rest can wait {others}. Or {_SMALLER}"
        return text + f"--device-memory {_mib(self.least)} or somewhat more lets the rest wait {others}. Or {_SMALLER}"


def plan_weights(linear: Mapping[str, int], others: int, dtype: str, device_memory: int | None) -> WeightPlan:
    """Plan which linear weights wait: from the first one that does not fit; the ``others`` always stay.

    ``linear``: bytes by name, in the model's order. ``device_memory``: MiB on the device; None: no limit.
    OperatorError: the weights cannot be reduced to ``device_memory``; the text says to what they can.
    """
    whole, largest = others + sum(linear.values()), max(linear.values(), default=0)
    is_quantised = PRECISIONS[dtype].is_quantised
    if device_memory is None:
        least = None if is_quantised else others + largest
        return WeightPlan(on_device=whole, waiting=(), waiting_bytes=0, least=least)
    if is_quantised:
        raise OperatorError(
            f"--device-memory and --dtype {dtype} do not go together: quantised weights cannot wait outside the "
            "device. Use --dtype bf16, or leave --device-memory out"
        )
    budget = device_memory << 20
    if whole > budget < others + largest:
        raise OperatorError(
            f"--device-memory {device_memory}: embeddings, norms and the largest layer take {_mib(others + largest)} "
            f"MiB in {dtype}: give at least that, or {_SMALLER}"
        )
    # The first weights stay while there is room for them, and for the largest waiting one when its turn comes.
    staying = sum(total <= budget - others - largest for total in accumulate(linear.values()))
    waiting = () if whole <= budget else tuple(linear)[staying:]
    waiting_bytes = sum(linear[name] for name in waiting)
    on_device = whole - waiting_bytes + (largest if waiting else 0)
    return WeightPlan(on_device=on_device, waiting=waiting, waiting_bytes=waiting_bytes, least=others + largest)


def waits_in_files(device: str) -> bool:
    """Return whether weights wait in temporary files, because this kind of device computes in main memory."""
    return device != _OWN_MEMORY


def _mib(size: int) -> int:
    """Return the smallest number of MiB that holds ``size`` bytes."""
    return -(-size >> 20)
