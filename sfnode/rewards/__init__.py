"""Doors: `Checker`, `RewardCommand`. What an answer is worth, by a run's rule or by a node's own command."""

from sfnode.rewards.checker import Checker as Checker
from sfnode.rewards.in_words import rule_in_words as rule_in_words
from sfnode.rewards.reward_command import RewardCommand as RewardCommand
