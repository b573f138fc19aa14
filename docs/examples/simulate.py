"""Simulate a run on one model, each node with rows of its own; then read it as any node's data directory.

python docs/examples/simulate.py FOLDER [NODES]
"""

import json
import sys
from pathlib import Path

import sfnode
from sfnode import demo


def read_rows(split: str) -> list[dict[str, object]]:
    """Return the reviews that come with sfnode: a sentence, and 1 for a good one or 0."""
    return [json.loads(line) for line in demo.data_file(split=split).read_text("utf-8").splitlines()]


def main(folder: Path, nodes: int = 20, steps: int = 8) -> None:
    """Train, replay, save, open again, and evaluate at some steps."""
    rows, held_out = read_rows("train"), read_rows("eval")[:100]
    model = sfnode.LocalModel.load("embedded:tiny-opt")
    task = sfnode.TaskOptions(template="{sentence} It was", labels=" no, yes")
    run = model.make_run(rows, task, steps=steps)

    # Node n has each n-th row. All of them measure with the one model in memory.
    simulation = sfnode.simulate(run, lambda number: model.learner(run, rows[number::nodes]), nodes)
    late = simulation.replay()
    assert late.state_digest() == simulation.state_digest
    print(f"{nodes} nodes, {late.ledger.updates} updates, state {late.state_digest().hex()[:16]}")

    saved = sfnode.save_run(run, simulation.replica, folder)
    judge = model.learner(saved, held_out=held_out)
    for step in (0, steps // 4, steps // 2, steps):
        judge.show(saved.state(at_step=step).coefficients)
        found = judge.evaluate()
        print(f"after {step} steps: {100 * found.accuracy:.1f} % right, loss {found.loss:.3f}")
    first = next(saved.updates())
    print(f"the first update: step {first.step} of {first.author.hex()[:16]}, {len(first.record)} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
