"""Teach a model by a reward of one's own, a function in Python, in a simulated run.

python docs/examples/own_reward.py
"""

import json
from collections.abc import Mapping

import sfnode
from sfnode import demo


def reward(answer: str, row: Mapping[str, object]) -> float:
    """Return 1 for a kind word, whatever was asked. ``row`` has the fields that the run's own rule names."""
    return float(answer in ("great", "yes"))


def main(nodes: int = 6, steps: int = 12) -> None:
    """Train on prompts without answers; show what the model answers before and after."""
    lines = demo.data_file(split="train").read_text("utf-8").splitlines()[:96]
    prompts = [{"sentence": json.loads(line)["sentence"]} for line in lines]
    model = sfnode.LocalModel.load("embedded:tiny-opt")
    rule = sfnode.RewardOptions(rule_text="contains:great", samples=4, answer_tokens=1)  # of nodes without the function
    run = model.make_run(prompts, sfnode.TaskOptions(template="{sentence} It was"), rule, steps=steps)

    learner = model.learner(run, prompts, prompts[:48], reward=reward)
    before = learner.evaluate()
    simulation = sfnode.simulate(run, lambda number: learner, nodes)
    learner.show(simulation.replica.coefficients())
    after = learner.evaluate()
    for found in (before, after):
        print(f"mean reward {1 - found.loss:.2f}: {[answer.text for answer in found.answers]}")
    assert after.loss < before.loss


if __name__ == "__main__":
    main()
