"""All mutants, in the order of the table, and the control: the same looks with no mutant on."""

from __future__ import annotations

from tests.mutants import (
    of_admission,
    of_archive,
    of_bytes,
    of_calibration,
    of_clock,
    of_dense,
    of_ledger,
    of_model,
    of_model_files,
    of_network,
    of_node,
    of_peers,
    of_pieces,
    of_processes,
    of_rewards,
    of_snapshots,
    of_storage,
    of_strangers,
    of_sync,
    of_voids,
)
from tests.mutants.detectors import SEEDS_MAX, Detector, Directed, HashSeeds, Simulation, Tests, Vectors
from tests.mutants.mutant import Mutant

_SEEDS_PER_CONTROL = 15  # so that several processes share the work

MUTANTS = (
    *of_ledger.SLOTS,
    *of_ledger.DIGESTS,
    *of_archive.ARCHIVE,
    *of_voids.VOIDS,
    *of_admission.ADMISSION,
    *of_calibration.BASES,
    *of_dense.MESSAGES,
    *of_dense.STATE,
    *of_dense.RULES,
    *of_rewards.RULES,
    *of_rewards.ANSWERS,
    *of_model.SUMS,
    *of_model.MEANING,
    *of_model.MEMORY,
    *of_model.OFFLOAD,
    *of_model_files.HOSTILE_FILES,
    *of_model_files.MODEL_CACHE,
    *of_node.RECORDS,
    *of_node.SIGNING,
    *of_node.FLOOD,
    *of_clock.CLOCK,
    *of_clock.END,
    *of_storage.STORAGE,
    *of_sync.DIALOGUE,
    *of_sync.SESSIONS,
    *of_snapshots.SNAPSHOTS,
    *of_bytes.ENVELOPES,
    *of_bytes.MESSAGES,
    *of_network.PROCESS,
    *of_network.STREAMS,
    *of_network.YAMUX,
    *of_network.CLOSING,
    *of_peers.SESSIONS,
    *of_peers.RATE_LIMITS,
    *of_peers.PLACES,
    *of_peers.REPUTATION,
    *of_pieces.PIECES,
    *of_strangers.BOMBS,
    *of_strangers.DOORS,
    *of_strangers.NEGOTIATION,
    *of_strangers.TURNS,
    *of_processes.PROCESSES,
)


def _controls() -> list[Mutant]:
    """Everything that the detectors look at, once, while nothing is wrong."""
    detectors: list[Detector] = [
        Simulation(seeds=_SEEDS_PER_CONTROL, first=first) for first in range(0, SEEDS_MAX, _SEEDS_PER_CONTROL)
    ]
    used = [mutant.detector for mutant in MUTANTS]
    files = {name for detector in used if isinstance(detector, Vectors) for name in detector.files}
    names = {name for detector in used if isinstance(detector, Tests) for name in detector.names}
    detectors += [Vectors(tuple(sorted(files))), Tests(tuple(sorted(names))), HashSeeds()]
    detectors += [detector for detector in used if isinstance(detector, Directed)]
    return [
        Mutant(name=f"control-{number}", breaks="nothing", edits=(), detector=detector)
        for number, detector in enumerate(detectors, start=1)
    ]


def controls(checked_seeds: int = 0) -> tuple[Mutant, ...]:
    """The control, without what `make test` has looked at just before: so many seeds, and all tests and vectors."""
    return tuple(mutant for mutant in CONTROLS if not _is_checked(mutant.detector, checked_seeds))


def _is_checked(detector: Detector, checked_seeds: int) -> bool:
    if isinstance(detector, Simulation):
        return detector.first + detector.seeds <= checked_seeds
    return isinstance(detector, Tests | Vectors) and checked_seeds > 0


CONTROLS = tuple(_controls())
BY_NAME = {mutant.name: mutant for mutant in (*CONTROLS, *MUTANTS)}
