"""An owner's choices for a run that learns from rewards, and the rule that follows from them. No click, no torch."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from protocol.errors import OperatorError
from protocol.run import RewardRule, bounded_json, parse_reward, reward
from protocol.schema import Malformed
from sfnode.rewards import Checker
from sfnode.run.option_field import given, typed
from sfnode.storage import disk

SAMPLES = 4
ANSWER_TOKENS = 16
PROMPT = "{prompt}"
_ANSWERS = 16  # of a message, if there may be several prompts: all figures in docs/rewards.md are with these
_TEXTS = ("exact", "contains", "regex", "number")
_COUNTS = ("words", "characters")
_COUNT = re.compile(r"([0-9]{1,64})(?:-([0-9]{1,64}))?")
_FORMS = (
    "Give exact:{answer}, contains:{answer}, regex:[a-z]+, number:{answer}, words:1-8, characters:1-80, a check as "
    'JSON such as {"sum": [[3, {"exact": "{answer}"}], [1, {"words": [1, 1]}]]}, or @FILE; {answer} is a row\'s field'
)
_WHOLE = 'A whole rule is {"check": ..., "samples": 4, "tokens": 16}; docs/rewards.md has checks and --private-reward'


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardOptions:
    """Describes how good answers are. ``rule_text``: None: the run learns from labels or texts.

    Attributes:
        is_chat: None: where the model has a chat template.
    """

    usual_steps: ClassVar = 32  # an answer's form is learnt from hundreds, a decision from thousands: docs/rewards.md
    rule_text: str | None = given(
        None,
        "Learn from rewards in place of labels: nodes sample answers to the prompt of --template, by default "
        "{prompt}, and this rule says how good each is: exact:{answer}, contains:..., regex:..., number:{answer}, "
        "words:1-8, a check in JSON, or @FILE.",
        name="--reward",
        form=("RULE", str),
    )
    samples: int | None = given(
        None, f"Let the model give this many answers to each prompt.  [default: {SAMPLES}]", bounds=(2, 64)
    )
    answer_tokens: int | None = given(
        None,
        f"Allow this many tokens in an answer: 17 or more for a form, such as a date.  [default: {ANSWER_TOKENS}]",
        bounds=(1, reward.ANSWER_TOKENS_MAX),
    )
    answer: str | None = given(
        None,
        "Learn this text as the right answer of each row, such as {answer}, where \\n is a line break; the rule checks "
        "what the model writes. If empty (''), learn from answers that the model draws.  [default: what gets the whole "
        "reward in each row]",
        form=("TEXT", str),
    )
    is_chat: bool | None = given(
        None,
        "Put the prompt into the model's own chat template, as the user's words.  [default: where it has one]",
        name="--chat/--no-chat",
    )

    @property
    def others(self) -> dict[str, object]:
        """Return the options that only a rule has, by name; None: not given."""
        tokens = self.answer_tokens
        return {"--samples": self.samples, "--answer-tokens": tokens, "--answer": self.answer, "--chat": self.is_chat}

    @property
    def document(self) -> str:
        """Return the rule as the manifest holds it. OperatorError: no rule was given, or it is wrong."""
        data = check_data(self.rule_text or "")
        document = {"check": data, "samples": SAMPLES, "tokens": ANSWER_TOKENS} | (data if "check" in data else {})
        chosen = {"samples": self.samples, "tokens": self.answer_tokens}
        document |= {name: value for name, value in chosen.items() if value is not None}
        if self.answer is not None:
            document.pop("answer", None)
            document |= {"answer": typed(self.answer)} if self.answer else {}
        if "answer" in document:
            document["samples"] = reward.SAMPLES_MIN  # none is drawn, and a message has as many rows at least
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        Checker(_parsed(text))  # raises
        return text

    @property
    def rule(self) -> RewardRule:
        """Return the rule. OperatorError: no rule was given, or it is wrong."""
        return _parsed(self.document)

    def with_right_answer(self, rows: Iterable[Mapping[str, object]]) -> "RewardOptions":
        """Return the options with the right answer that rows name, unless one is chosen; ``rows``: fields of each.

        OperatorError: an answer is chosen, and a number of answers to draw as well.
        """
        if self.rule_text is not None and self.answer is None and self.rule.answer is None:
            return replace(self, answer=Checker(self.rule).right_answer(rows).replace(r"\n", r"\\n"))
        if self.samples is not None and self.rule.answer is not None:
            text = "no answer is drawn where rows name the right one: leave it out, or give --answer '' to draw answers"
            raise OperatorError(f"--samples {self.samples}: {text}")
        return self

    def batch_rows(self, asked: int | None) -> int:
        """Return the rows of a message: answers, or rows that name them. OperatorError: ``asked`` does not fit."""
        samples = (rule := self.rule).rows_each
        if asked is None:
            return max(_ANSWERS // samples, 1) * samples
        if rule.answer is not None and asked < rule.samples:
            raise OperatorError(f"--batch-rows {asked}: give {rule.samples} or more, as any run with --reward has")
        if asked % samples:
            near = max(asked // samples, 1) * samples
            raise OperatorError(
                f"--batch-rows {asked}: counts answers, {samples} to each prompt: give a multiple of {samples}, such "
                f"as {near}, or another --samples"
            )
        return asked


NO_REWARD = RewardOptions()


def check_data(given_rule: str) -> dict[str, object]:
    """Return the check, or the whole document, that ``--reward`` gives. OperatorError: it is none.

    Whether the check itself is right, `RewardOptions.document` says.
    """
    source = "--reward"
    if given_rule.startswith("@"):
        source, path = given_rule, disk.from_home(given_rule[1:])
        given_rule = disk.read_bytes(path, "the rule of rewards").decode("utf-8-sig", "replace").strip()
    name, is_short, rest = given_rule.partition(":")
    if is_short and name in _TEXTS:
        if not rest.strip():
            raise OperatorError(f"{source} {name}: has nothing after the colon. {_FORMS}")
        return {name: rest.strip()}  # as are the answers
    if is_short and name in _COUNTS:
        if (count := _COUNT.fullmatch(rest.strip())) is None:
            raise OperatorError(f"--reward {name}:{rest[:64]}: give the least and the most, such as {name}:1-8")
        return {name: [int(count[1]), int(count[2] or count[1])]}
    if not given_rule.startswith("{"):
        what = f"is no rule, and a file of one is @{given_rule[:64]}" if given_rule.endswith(".json") else "is no rule"
        raise OperatorError(f"{source} {given_rule[:64]!r}: {what}. {_FORMS}")
    try:
        data = bounded_json.read_json(given_rule, source)
    except Malformed as error:
        raise OperatorError(str(error)) from None
    assert isinstance(data, dict)  # it begins with a brace
    return data


def _parsed(document: str) -> RewardRule:
    try:
        return parse_reward(document)
    except Malformed as error:
        raise OperatorError(f"--reward: {error}. {_WHOLE}") from None
