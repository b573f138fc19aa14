"""Door: `Checker`. What an answer is worth by the rule of a run that learns from rewards."""

from sfnode.rewards.checker import Checker as Checker
