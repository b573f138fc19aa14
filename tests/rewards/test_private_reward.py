"""`sfnode join --private-reward`: a command of the node's own, in runs that learn from rewards alone."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from protocol.errors import OperatorError
from protocol.run.manifest import Manifest
from protocol.run.task import TaskKind
from sfnode.node.join_preparation import _private_reward
from sfnode.run import TrainingOptions
from tests.support.manifests import small_manifest


def run_of_rewards() -> Manifest:
    plain = small_manifest()
    rule = json.dumps({"check": {"words": [1, 3]}, "samples": 2, "tokens": 4})
    return replace(plain, task=replace(plain.task, kind=TaskKind.REWARD, completion=rule, label_words=()))


def test_private_reward__run_of_rewards__command_is_kept() -> None:
    given = TrainingOptions(private_reward="python3 check.py")
    assert _private_reward(run_of_rewards(), given) == "python3 check.py"
    assert _private_reward(run_of_rewards(), TrainingOptions()) is None


def test_private_reward__run_of_labels__is_refused() -> None:
    with pytest.raises(OperatorError, match="--private-reward checks answers, and this run learns from labels"):
        _private_reward(small_manifest(), TrainingOptions(private_reward="true"))


@pytest.mark.parametrize(("command", "reason"), [("", "name a program"), ("check 'me", "check its quotes")])
def test_private_reward__no_command__is_refused_at_the_start(command: str, reason: str) -> None:
    with pytest.raises(OperatorError, match=reason):
        _private_reward(run_of_rewards(), TrainingOptions(private_reward=command))
