"""Doors: `Checker` and `RewardCommand`. How good an answer is: by a run's rule, or by a node's own command."""

from sfnode.rewards.private_reward import RewardCommand
from sfnode.rewards.rule_checker import Checker
