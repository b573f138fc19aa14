"""Door: `Checker`. What an answer is worth by the rule of a run that learns from rewards."""

from sfnode.rewards.checker import Checker as Checker
from sfnode.rewards.in_words import rule_in_words as rule_in_words
