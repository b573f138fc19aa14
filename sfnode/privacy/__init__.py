"""Doors: `NoisySum`, `RowUses`. Noise on what a node sends of its own rows, and what that noise guarantees."""

from sfnode.privacy import accounting, noisy_sum
from sfnode.privacy.accounting import RowsOfStep, RowUses
from sfnode.privacy.noisy_sum import NoisySum
