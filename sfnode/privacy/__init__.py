"""Doors: `NoisySum`, `RowUses`. Noise on what a node sends of its own rows, and what that noise guarantees."""

from sfnode.privacy import accounting as accounting, noisy_sum as noisy_sum
from sfnode.privacy.accounting import RowsOfStep as RowsOfStep, RowUses as RowUses
from sfnode.privacy.noisy_sum import NoisySum as NoisySum
