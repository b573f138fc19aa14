"""An operator's choices for training on this machine, which a node also sends to its worker. No torch."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from sfnode.worker_protocol.device_choices import DeviceOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseConfig:
    """Holds how much noise goes into a dense message.

    Attributes:
        multiplier: standard deviation of the noise in a message's sum, in lengths to which a row is clipped.
        epsilon_max: measure nothing that would exceed it; None: no limit.
    """

    multiplier: float
    epsilon_max: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingConfig:
    """Holds an operator's choices for training on this machine.

    Attributes:
        model: folder of the model, ``embedded:NAME``, or a hub id (then the manifest's revision is used); None while
            only neighbours have it.
        data: file of rows to train on; None for a session that only evaluates.
        eval_data: file of rows to evaluate on, or None.
        threads, worker_socket: of the worker to start, None being `default_threads`, or of one that runs already;
            no session needs them.
        noise: of the messages; None: none.
        private_reward: a command that says how good answers are, in place of the run's rule; None: the rule does.
        basis: file of the basis of a run with a dense core; else None.
    """

    model: str | None
    data: Path | None
    eval_data: Path | None = None
    devices: DeviceOptions = field(default_factory=DeviceOptions)
    threads: int | None = None
    worker_socket: Path | None = None
    noise: NoiseConfig | None = None
    private_reward: str | None = None
    basis: Path | None = None

    @staticmethod
    def default_threads() -> int:
        """Return all cores but one, which the network needs: without a spare core a step is 15 times slower."""
        return max(1, (os.cpu_count() or 1) - 1)
