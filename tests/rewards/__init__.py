"""Rewards: what answers get by the rule of a run."""
