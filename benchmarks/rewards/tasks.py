"""What is answered, and what makes an answer a good one: tasks whose checks are rules as `sfnode init` takes them.

An answer that gets the whole reward is one that passes strictly: parts of the reward only show the way there.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

from transformers import PreTrainedTokenizerBase

from protocol.run import Objective, TaskKind, TaskSpec
from sfnode.training.chat import chat_prompt
from sfnode.training.task import TaskData, read_task

Row: TypeAlias = dict[str, str]
Rows: TypeAlias = tuple[list[Row], list[Row]]  # to learn from, and held out

SAMPLES = 4  # answers to a prompt
ANSWERS = 16  # of a client and round
TOKENS_MAX = 192  # of a prompt and its answer
_HELD_OUT = 128
_SEED = 5
_NEWS_WORDS = 30
_REVIEW_WORDS = range(6, 26)
_NAMES = "Ann Ben Carla David Eva Frank Grace Henry Iris Jack Kate Leo Maria Nick Olga Paul Rosa Sam Tina Victor"
_SURNAMES = "Miller Smith Jones Brown Garcia Lopez Wilson Moore Taylor Clark Lewis Young King Hill Green Adams Baker"
_CITIES = "Paris London Berlin Madrid Rome Vienna Oslo Lisbon Athens Dublin Prague Warsaw Boston Chicago Denver"
_WORK = "nurse teacher pilot farmer lawyer painter baker driver writer doctor"
_TOPICS = ("world", "sports", "business", "science")


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardTask:
    """A kind of answer.

    Attributes:
        about: for people.
        check: of the rule; tokens: of the longest answer.
        files: that it needs, below the data folder; none: everything is made up.
        rows: makes its prompts, from the data folder.
    """

    name: str
    about: str
    check: Mapping[str, object]
    tokens: int
    files: tuple[str, ...]
    rows: Callable[[Path], Rows]

    def spec(self, tokenizer: PreTrainedTokenizerBase, tokens_max: int) -> TaskSpec:
        """The manifest's part about the task, with the prompt in the chat template of the model."""
        rule = {"check": self.check, "samples": SAMPLES, "tokens": self.tokens}
        return TaskSpec(
            kind=TaskKind.REWARD,
            template=chat_prompt(tokenizer, "{prompt}", is_chat=None),
            completion=json.dumps(rule),
            label_words=(),
            objective=Objective.LOSS,
            data="private",
            data_sha256="",
            max_tokens=tokens_max,
            batch_rows=ANSWERS,
        )

    def read(self, tokenizer: PreTrainedTokenizerBase, spec: TaskSpec, data: Path, held_out: int) -> TaskData:
        """The prompts to learn from, and the first ``held_out`` of those that are held out."""
        train, test = self.rows(data)
        with TemporaryDirectory() as folder:
            paths = [Path(folder) / name for name in ("train.jsonl", "test.jsonl")]
            for path, rows in zip(paths, (train, test[:held_out]), strict=True):
                path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
            return read_task(tokenizer, spec, paths[0], paths[1])


def _read(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line.strip()]


def _people(_data: Path) -> Rows:
    """Sentences about people, each of a name, an age and a city."""
    chance = random.Random(_SEED)
    made = {row["prompt"]: row for row in (_person(chance) for _ in range(1_200))}
    rows = [*made.values()]
    return rows[_HELD_OUT:], rows[:_HELD_OUT]


def _person(chance: random.Random) -> Row:
    name = f"{chance.choice(_NAMES.split())} {chance.choice(_SURNAMES.split())}"
    city, work, age = chance.choice(_CITIES.split()), chance.choice(_WORK.split()), chance.randint(18, 80)
    sentence = chance.choice(
        (
            f"{name}, {age}, is a {work} in {city}.",
            f"In {city} lives {name}, a {work} of {age} years.",
            f"{name} works as a {work} in {city} and is {age} years old.",
        )
    )
    prompt = f'{sentence}\nWrite this as JSON with the keys "name", "age" and "city", in one line.'
    return {"prompt": prompt, "name": name, "line": json.dumps({"name": name, "age": age, "city": city})}


def _reviews(data: Path) -> Rows:
    """Film reviews of SST-2."""

    def rows(file: str) -> Iterator[Row]:
        for each in _read(data / "sst2" / file):
            sentence = str(each["sentence"]).strip()
            if len(sentence.split()) in _REVIEW_WORDS:
                prompt = f"{sentence}\nIs this a positive review? Answer yes or no."
                yield {"prompt": prompt, "answer": ("no", "yes")[int(str(each["label"]))]}

    return [*rows("train_1024.jsonl")], [*rows("dev_872.jsonl")][:_HELD_OUT]


def _news(data: Path) -> Rows:
    """News items of AG News, cut after 30 words."""
    question = "What is this news about: world, sports, business or science? Answer with one of these words."

    def rows(file: str) -> list[Row]:
        return [
            {
                "prompt": f"{' '.join(str(each['text']).split()[:_NEWS_WORDS])}\n{question}",
                "answer": _TOPICS[int(str(each["label"]))],
            }
            for each in _read(data / "agnews" / file)
        ]

    return rows("train_1024.jsonl"), rows("test_1000.jsonl")[:_HELD_OUT]


def _questions(data: Path) -> Rows:
    """Questions of TREC."""
    train, test = (
        [{"prompt": str(each["text"])} for each in _read(data / "trec" / file)]
        for file in ("train_1024.jsonl", "test_500.jsonl")
    )
    return train, test[:_HELD_OUT]


def _sums(_data: Path) -> Rows:
    """Sums of two numbers below 50."""
    chance = random.Random(_SEED)
    pairs = [(first, second) for first in range(2, 50) for second in range(2, 50)]
    chance.shuffle(pairs)
    rows = [
        {"prompt": f"What is {first} + {second}? Answer with the number only.", "answer": str(first + second)}
        for first, second in pairs
    ]
    return rows[_HELD_OUT:1_200], rows[:_HELD_OUT]


def _one_word(found: str) -> dict[str, object]:
    return {"sum": [[0.1, {"words": [1, 2]}], [0.2, {"regex": found}], [0.7, {"regex": r"(?i){answer}\.?"}]]}


_LINE = {
    "sum": [
        [0.2, {"json": {"type": "object", "required": ["name", "age", "city"]}}],
        [0.1, {"contains": "{name}"}],
        [0.2, {"contains": '{{"name": "{name}",'}],
        [0.5, {"exact": "{line}"}],
    ]
}
_BRIEF = {"sum": [[0.5, {"words": [2, 8]}], [0.5, {"regex": "[A-Z][^.\n]*[a-z]\\."}]]}
_WITHIN = r"(?is).*\b{answer}\b.*"

_ALL = (
    RewardTask(name="line", about="JSON in one line", check=_LINE, tokens=44, files=(), rows=_people),
    RewardTask(
        name="yes",
        about="yes or no, of reviews",
        check=_one_word(_WITHIN),
        tokens=8,
        files=("sst2/train_1024.jsonl", "sst2/dev_872.jsonl"),
        rows=_reviews,
    ),
    RewardTask(
        name="topic",
        about="a topic in one word",
        check=_one_word(_WITHIN),
        tokens=10,
        files=("agnews/train_1024.jsonl", "agnews/test_1000.jsonl"),
        rows=_news,
    ),
    RewardTask(
        name="brief",
        about="a short answer that ends",
        check=_BRIEF,
        tokens=24,
        files=("trec/train_1024.jsonl", "trec/test_500.jsonl"),
        rows=_questions,
    ),
    RewardTask(name="sums", about="two-digit sums", check=_one_word(_WITHIN), tokens=14, files=(), rows=_sums),
)
REWARD_TASKS = {task.name: task for task in _ALL}
