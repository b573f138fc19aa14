"""The kinds of recipes, and what can be said of each. No torch: what they do is elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.run import CoreKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Mezo:
    """Plain MeZO: all parameters, normal directions, one direction and two passes a step, a constant rate.

    Attributes:
        steps: how many; tune_steps: of each trial of a learning rate.
        rates: learning rates to choose from.
        rows: examples a side of a step.
    """

    steps: int
    tune_steps: int
    rates: tuple[float, ...]
    rows: int = 16

    @property
    def rows_each_step(self) -> int:
        """Forward rows: both sides."""
        return 2 * self.rows


@dataclass(frozen=True, slots=True, kw_only=True)
class BackPropagation:
    """AdamW, of all parameters or of a LoRA adapter; what a first-order method does with the same rows.

    Attributes: as in Mezo, and lora_targets, as peft names the layers that get an adapter.
    Only forward rows are counted: the backward pass costs about two more of each.
    """

    steps: int
    tune_steps: int
    rates: tuple[float, ...]
    is_lora: bool
    rows: int = 16
    lora_targets: str | tuple[str, ...] = ("q_proj", "v_proj")  # as in MeZO's comparison

    @property
    def rows_each_step(self) -> int:
        """Forward rows."""
        return self.rows


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkTrial:
    """A run of the network.

    Attributes:
        steps: how many, which is also the length of a linear schedule; tune_steps: of each trial of a learning rate.
        rates: learning rates to choose from (`sfnode init --learning-rate`), each for every message; none: what
            `sfnode init` takes, times ``rate_factor``.
        rows: examples a step and client, shared by the directions (`Method.shares`).
        core: as in the manifest. "dense": what `sfnode init` makes, from unlabelled training examples, others for
            every seed; the fields on rank, scalars and directions then do not matter.
        trainable: groups of tensors, comma-separated.
        cheats: so many of the clients send the opposite of what they measured, as large as a message may be.
        others: as in the manifest.
    """

    steps: int
    tune_steps: int
    rates: tuple[float, ...]
    rows: int = 16
    rank: int = 16
    core: str = "rademacher"
    scalar: str = "normalised"
    directions: int = 8
    sides: int = 2
    shares: int = 1
    epoch_steps: int = 1_024
    schedule: str = "linear"
    epsilon_exp: int = -10
    trainable: str = "linear"
    objective: str = "loss"
    clients: int = 1
    cheats: int = 0
    rate_factor: float = 1.0

    @property
    def is_dense(self) -> bool:
        """Whether messages hold a dense core."""
        return CoreKind(self.core) is CoreKind.DENSE

    @property
    def rows_each_step(self) -> int:
        """Forward rows of all clients: every direction's share on one or both sides; one-sided, the shared pass too.

        With a dense core each example passes once.
        """
        if self.is_dense:
            return self.clients * self.rows
        perturbed = self.rows * self.shares * self.sides
        return self.clients * (perturbed if self.sides == 2 else perturbed + self.rows)


Recipe = Mezo | BackPropagation | NetworkTrial
