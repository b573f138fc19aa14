"""What takes part in the comparison, by name. To add a configuration: one entry in NETWORKS.

Every recipe has a list of learning rates. With more than one, the best is chosen for each task on its tuning file with
a seed of its own, by the mean loss of the last three evaluations, before the reported seeds run.
"""

from __future__ import annotations

from benchmarks.learn.clients import NetworkTrial
from benchmarks.learn.plain import BackPropagation, Mezo

Recipe = Mezo | BackPropagation | NetworkTrial

MEZO = "MeZO"
MEZO_STEPS = 1_000

REFERENCES: dict[str, Recipe] = {
    MEZO: Mezo(steps=MEZO_STEPS, tune_steps=400, rates=(1e-4, 2e-4, 3e-4)),
    "SubCGE": NetworkTrial(
        steps=500,
        tune_steps=400,
        rates=(3e-4, 1e-3),
        rank=32,
        core="canonical",
        scalar="raw",
        directions=1,
        schedule="constant",
    ),
    "AdamW": BackPropagation(steps=150, tune_steps=75, rates=(1e-4, 3e-4), is_lora=False),
    "LoRA": BackPropagation(steps=150, tune_steps=75, rates=(1e-3, 3e-3), is_lora=True),
}

NETWORKS: dict[str, NetworkTrial] = {
    "random basis": NetworkTrial(steps=300, tune_steps=150, rates=(1e-3, 3e-3), rank=32, directions=16),
    "forward basis": NetworkTrial(steps=150, tune_steps=150, rates=(2e-3, 5e-3), directions=16, basis="forward"),
    "gradient basis": NetworkTrial(steps=150, tune_steps=150, rates=(1e-3, 3e-3), basis="gradient"),
}

RECIPES: dict[str, Recipe] = {**REFERENCES, **NETWORKS}

# More clients, at the learning rate that was chosen for one.
SCALED = "gradient basis"
SCALED_TASK = "sst2"

# Ten clients at a rate that bears them, some of which send the opposite of what they measured.
CHEATS_TASK = "sst2"
CHEATS: dict[str, Recipe] = {
    f"{cheats} of 10 cheat": NetworkTrial(
        steps=24,
        tune_steps=24,
        rates=(7.5e-4,),
        schedule="constant",
        basis="gradient",
        clients=10,
        cheats=cheats,
    )
    for cheats in range(4)
}

# The objective is the accuracy on the step's rows itself. At the start every row is far on one side: a difference of
# accuracies is other than zero only with a wide step and many rows, so all directions share one batch of 32.
METRIC_TASK = "sst2"
METRICS: dict[str, Recipe] = {
    "accuracy itself": NetworkTrial(
        steps=80,
        tune_steps=80,
        rates=(3e-3,),
        rows=32,
        directions=8,
        shares=8,
        epsilon_exp=-6,
        basis="forward",
        objective="accuracy",
    ),
}
