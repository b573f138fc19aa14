"""Bugs of rewards: rules that are taken although they are none, and answers that get what they must not."""

from __future__ import annotations

from tests.mutants.detectors import Tests, Vectors
from tests.mutants.mutant import Mutant
from tests.mutants.patch import Edit

_REWARD = "protocol.run.reward"
_JSON = "protocol.run.bounded_json"
_TASK = "protocol.run.task"
_CHECKER = "sfnode.rewards.rule_checker"
_ENCODING = "sfnode.training.task.encoding"
_RULES = Vectors(("manifests.json",))
_CHECKS = Vectors(("checks.json",))

RULES = (
    Mutant(
        name="any-text-is-a-rule-of-rewards",
        breaks="a manifest may hold a rule that nobody can read: its nodes join, and none can train",
        edits=(Edit(_TASK, "broken_task_rules", "task.kind is TaskKind.REWARD", "False"),),
        detector=_RULES,
    ),
    Mutant(
        name="rewards-along-drawn-directions",
        breaks="a run that nobody can train is taken: nodes fetch its model, and their workers end",
        edits=(Edit("protocol.run.manifest", "_broken_dense_rules", "manifest.task.kind is TaskKind.REWARD", "False"),),
        detector=_RULES,
    ),
    Mutant(
        name="sums-without-depth",
        breaks="sums nest without bound: a manifest overflows the stack of its readers",
        edits=(Edit(_REWARD, "_Grammar.check", "depth > CHECK_DEPTH_MAX", "False"),),
        detector=_RULES,
    ),
    Mutant(
        name="schemas-without-depth",
        breaks="schemas nest without bound, and each answer is compared with all of their levels",
        edits=(Edit(_REWARD, "_Grammar._schema", "depth > CHECK_DEPTH_MAX", "False"),),
        detector=_RULES,
    ),
    Mutant(
        name="terms-counted-by-sum",
        breaks="each sum may have 16 terms, and a rule thousands",
        edits=(Edit(_REWARD, "_Grammar._sum", "self._terms > TERMS_MAX", "False"),),
        detector=_RULES,
    ),
    Mutant(
        name="weight-of-zero",
        breaks="a sum whose weights are all 0 is divided by 0",
        edits=(Edit(_REWARD, "_Grammar._sum", "if not 0 < (share", "if not 0 <= (share"),),
        detector=_RULES,
    ),
    Mutant(
        name="last-of-repeated-keys",
        breaks="of a repeated key the last value counts: people and readers see different rules",
        edits=(Edit(_JSON, "_unrepeated", "len(members) < len(pairs)", "False"),),
        detector=_RULES,
    ),
    Mutant(
        name="lone-surrogates-in-rules",
        breaks="a rule holds half of a surrogate pair, which no terminal and no UTF-8 can take",
        edits=(Edit(_REWARD, "parse_reward", "if has_half_pair", "if False and has_half_pair"),),
        detector=_RULES,
    ),
    Mutant(
        name="true-is-one-in-rules",
        breaks="true counts as the number 1",
        edits=(Edit(_REWARD, "_number", "isinstance(data, bool) or ", ""),),
        detector=_RULES,
    ),
)

ANSWERS = (
    Mutant(
        name="unended-answers-pass",
        breaks="an answer that does not end is rewarded for its beginning: the model learns never to stop",
        edits=(Edit(_CHECKER, "Checker._given", "case _ if not has_ended:", "case _ if False:"),),
        detector=_CHECKS,
    ),
    Mutant(
        name="empty-text-is-contained",
        breaks="a row with an empty field rewards every answer",
        edits=(Edit(_CHECKER, "Checker._given", 'wanted != "" and wanted in answer', "wanted in answer"),),
        detector=_CHECKS,
    ),
    Mutant(
        name="fields-are-patterns",
        breaks="a row's text is read as a pattern: a point in it matches anything",
        edits=(Edit(_CHECKER, "Checker._matches", "re2.escape(values[name])", "values[name]"),),
        detector=_CHECKS,
    ),
    Mutant(
        name="pattern-within-the-answer",
        breaks="a pattern need not match the whole answer",
        edits=(Edit(_CHECKER, "Checker._matches", "compiled.fullmatch", "compiled.search"),),
        detector=_CHECKS,
    ),
    Mutant(
        name="true-is-one-in-answers",
        breaks="the answer true is taken for the constant 1",
        edits=(Edit(_CHECKER, "_is_among", "isinstance(value, bool) is isinstance(each, bool) and ", ""),),
        detector=_CHECKS,
    ),
    Mutant(
        name="answers-of-any-length",
        breaks="a check looks at megabytes, since a token may be long",
        edits=(Edit(_CHECKER, "Checker.reward", "data[:_BYTES_MAX]", "data"),),
        detector=_CHECKS,
    ),
    Mutant(
        name="answers-of-any-depth",
        breaks="rules and data that nest as deep as this machine's stack allows are used here and refused elsewhere",
        edits=(Edit(_JSON, "bounded_value", "_nesting(text) > JSON_DEPTH_MAX", "False"),),
        detector=Tests(("tests/protocol/test_reward.py",)),
    ),
    Mutant(
        name="right-answers-without-an-end",
        breaks="a model that learns right answers never learns to stop after them",
        edits=(
            Edit(_ENCODING, "PromptEncoder._question", "(*self._following(text), *self._end)", "self._following(text)"),
        ),
        detector=Vectors(("tokens.json",)),
    ),
    Mutant(
        name="loose-rules-name-right-answers",
        breaks="a rule for whole sentences makes a run that learns to answer with one word",
        edits=(Edit(_CHECKER, "Checker.right_answer", "around in _AROUND", "around in ()"),),
        detector=Tests(
            (
                "tests/rewards/test_right_answers.py::test_right_answer__gets_the_whole_reward_in_all_rows__is_a_template",
            )
        ),
    ),
)
