"""Bytes over one edge in one direction: the paper's setting by formula, and what its figures leave out.

OPT-1.3b in fp32, 16 clients, 5,000 steps. The first-order methods exchange 100 times in them: 526 GB is a hundredfold
of the weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benchmarks.paper.rivals import FP32_BYTES, INDEX_BYTES
from protocol.framing import frame
from protocol.wire import Records, encode

OPT_1B3_WEIGHTS: Final = 1_315_758_080
LORA_WEIGHTS: Final = 24 * 2 * (2 * 2_048 * 8)  # rank 8 on queries and values of 24 layers of width 2,048
EXCHANGES: Final = 100
STEPS: Final = 5_000
CLIENTS: Final = 16
TOP_K: Final = 0.01
NOISE_BYTES: Final = 18  # of an encrypted message: two of its length, sixteen of the tag (Noise, sections 3 and 12)
YAMUX_BYTES: Final = 12  # header of a stream's frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One method's bytes; ``paper``: as the paper has it, None where it has none."""

    name: str
    formula: str
    counted: float
    paper: float | None = None


def accounts(record: bytes) -> list[Account]:
    """Of all methods. ``record``: an update of the paper's method as it travels here, with key, step and signature."""
    dense, adapter = FP32_BYTES * OPT_1B3_WEIGHTS * EXCHANGES, FP32_BYTES * LORA_WEIGHTS * EXCHANGES
    sparse = TOP_K * (FP32_BYTES + INDEX_BYTES) / FP32_BYTES
    updates = STEPS * CLIENTS
    alone = len(frame(encode(Records(request=0, data=record)))) + NOISE_BYTES + YAMUX_BYTES
    return [
        Account(name="DSGD", formula="4 B x weights x 100", counted=dense, paper=526e9),
        Account(name="ChocoSGD", formula="1 % of them, 12 B each, x 100", counted=sparse * dense, paper=15.79e9),
        Account(name="DSGD-LoRA", formula="4 B x 1,572,864 x 100", counted=adapter, paper=629.1e6),
        Account(name="ChocoSGD-LoRA", formula="1 % of them, 12 B each, x 100", counted=sparse * adapter, paper=18.8e6),
        Account(name="SeedFlood", formula="5 B x 5,000 x 16", counted=5.0 * updates, paper=400e3),
        Account(name="here, signed", formula=f"{len(record)} B x 5,000 x 16", counted=float(len(record) * updates)),
        Account(
            name="here, each alone in an encrypted message",
            formula=f"{alone} B x 5,000 x 16",
            counted=float(alone * updates),
        ),
    ]
