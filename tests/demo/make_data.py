"""Makes the demo's data set: `python -m tests.demo.make_data`.

Writes `reviews/train.jsonl` and `reviews/eval.jsonl` into `sfnode/demo`. The same
bytes come out on every machine: all choices come from one seeded `random.Random`.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Final

from sfnode.demo import DATA_NAME, FOLDER
from tests.demo.grammar import NEGATIVE, POSITIVE, Review, review

SEED: Final = 20240917
TRAIN_ROWS: Final = 1024  # the few-shot protocol of MeZO and SeedFlood
EVAL_ROWS: Final = 512  # one standard error of an accuracy near 0.5 is 2.2 points


def make_reviews() -> tuple[tuple[Review, ...], tuple[Review, ...]]:
    """The train and the held-out rows: each balanced, and no sentence occurs twice in both together."""
    stream = _distinct(Random(SEED))
    return _balanced(stream, TRAIN_ROWS), _balanced(stream, EVAL_ROWS)


def main() -> None:
    """Write both files and say what they hold."""
    folder = FOLDER / DATA_NAME
    folder.mkdir(exist_ok=True)
    for split, rows in zip(("train", "eval"), make_reviews(), strict=True):
        _write(folder / f"{split}.jsonl", rows)


def _distinct(random: Random) -> Iterator[Review]:
    seen: set[str] = set()
    while True:
        candidate = review(random)
        if candidate.sentence not in seen:
            seen.add(candidate.sentence)
            yield candidate


def _balanced(stream: Iterator[Review], rows: int) -> tuple[Review, ...]:
    """Take the next `rows` reviews of the stream, half of them of each label, in the order they come."""
    wanted = {NEGATIVE: rows // 2, POSITIVE: rows // 2}
    taken: list[Review] = []
    while len(taken) < rows:
        candidate = next(stream)
        if wanted[candidate.label]:
            wanted[candidate.label] -= 1
            taken.append(candidate)
    return tuple(taken)


def _write(path: Path, rows: Sequence[Review]) -> None:
    lines = (json.dumps({"sentence": row.sentence, "label": row.label}) + "\n" for row in rows)
    path.write_text("".join(lines), encoding="utf-8", newline="\n")
    print(f"{path}: {len(rows)} rows, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
