"""The kinds of recipes, and what can be said of each. No torch: what they do is elsewhere."""

from __future__ import annotations

from dataclasses import dataclass


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
        rates: learning rates to choose from (`sfnode init --learning-rate`), each for every message; none: what the
            calibration suggests, or else `sfnode init`, times ``rate_factor``.
        rows: examples a step and client, shared by the directions (`Method.shares`).
        basis: "random", or the `calibration.Source` of a published one, made from ``calibration_rows``
            training examples, others for every seed; None: as many as `sfnode init` takes.
        has_start: the run sets out from the start that the calibration found, if there is one.
        is_renewed: the owner makes another one at the start of every later epoch, at the weights as they are then.
        trainable: groups of tensors, comma-separated.
        epsilon_exp: as in the manifest; None: what the calibration suggests.
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
    epsilon_exp: int | None = -10
    basis: str = "random"
    calibration_rows: int | None = 128
    has_start: bool = True
    is_renewed: bool = False
    trainable: str = "linear"
    objective: str = "loss"
    clients: int = 1
    cheats: int = 0
    rate_factor: float = 1.0

    @property
    def rows_each_step(self) -> int:
        """Forward rows of all clients: every direction's share on one or both sides; one-sided, the shared pass too."""
        perturbed = self.rows * self.shares * self.sides
        return self.clients * (perturbed if self.sides == 2 else perturbed + self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreTrial:
    """Adam on the numbers that a run with a published basis learns, by back-propagation: what the space holds when no
    estimate adds noise.

    Attributes:
        rates: learning rates to choose from, by which a number moves each step; none: as of a `NetworkTrial`.
        rows: examples a step.
        basis, rank, calibration_rows: as of a `NetworkTrial`.
    """

    steps: int
    tune_steps: int
    rates: tuple[float, ...]
    rows: int = 16
    basis: str = "forward"
    rank: int = 16
    calibration_rows: int | None = 128

    @property
    def rows_each_step(self) -> int:
        """Forward rows."""
        return self.rows

    @property
    def network(self) -> NetworkTrial:
        """The run that would search this space."""
        return NetworkTrial(
            steps=self.steps,
            tune_steps=self.tune_steps,
            rates=self.rates,
            basis=self.basis,
            rank=self.rank,
            calibration_rows=self.calibration_rows,
        )


Recipe = Mezo | BackPropagation | NetworkTrial | CoreTrial
