"""Doors: `Checker`, `RewardCommand`. What an answer is worth, by a run's rule or by a node's own command."""

from sfnode.rewards.private_reward_program import RewardCommand
from sfnode.rewards.rule_checker import Checker
from sfnode.rewards.rule_words import rule_in_words
