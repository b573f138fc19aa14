"""Tasks known by name: prompt, label words and fields, after MeZO's (Malladi et al., arXiv 2305.17333, appendix E).

No torch here: the command line lists them. docs/tasks.md says where the data of each one come from.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from protocol.run import DATA_PRIVATE, Objective, TaskKind, TaskSpec
from sfnode import demo
from sfnode.rows import RowTexts, TaskTemplate, row_files

_TOKENS, _ROWS = 128, 16  # placeholders: rows are filled in without regard to them
_ENDS_IN_WORD = re.compile(r"[\w}.,:;?!) ]\Z")  # a word, field, punctuation or space; no line break, no quote


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTexts:
    """Holds the prompt, the text that follows it, and the label words, as in a run's manifest.

    Attributes:
        about: one line that describes a built-in task.
        is_reward: whether the completion is a rule that rewards answers.
    """

    about: str = ""
    template: str
    completion: str = ""
    label_words: tuple[str, ...] = ()
    is_reward: bool = False

    @property
    def kind(self) -> TaskKind:
        return TaskKind.REWARD if self.is_reward else kind_of(self.completion)

    @property
    def row_template(self) -> TaskTemplate:
        """Return what fills rows of data into the texts. OperatorError: they make no task."""
        return TaskTemplate(self.spec(Objective.LOSS, max_tokens=_TOKENS, batch_rows=_ROWS))

    def filled(self, rows: row_files.Rows) -> list[RowTexts]:
        """Return the texts of rows. OperatorError: one lacks a field."""
        template = self.row_template
        return [template.texts(row, where) for where, row in row_files.rows_of(rows, template)]

    def spec(
        self, objective: Objective, *, max_tokens: int, batch_rows: int, data: tuple[str, str] = (DATA_PRIVATE, "")
    ) -> TaskSpec:
        """Return the task of a run's manifest; ``data``: name and SHA-256, from `data_spec`."""
        return TaskSpec(
            kind=self.kind,
            template=self.template,
            completion=self.completion,
            label_words=self.label_words,
            objective=objective,
            data=data[0],
            data_sha256=data[1],
            max_tokens=max_tokens,
            batch_rows=batch_rows,
        )

    @property
    def spelled(self) -> "TaskTexts":
        """Return the texts with the space that comes before a label word where the prompt ends in one, or in a colon.

        Tokenizers have words with the space before them; "It was" and "no" would make "It wasno". Words of scripts
        without capitals get it where another word has it: Chinese and Thai have no spaces.
        """
        is_spaced = any(word.startswith(" ") for word in self.label_words)
        known = [word for word in self.label_words if is_spaced or _is_spaced_script(word[0])]
        bare = [word for word in known if word[0].isalnum()]
        if not bare or not _ENDS_IN_WORD.search(self.template):
            return replace(self, template=self.template.removesuffix(" ")) if is_spaced else self
        words = tuple(f" {word}" if word in bare else word for word in self.label_words)
        return replace(self, template=self.template.removesuffix(" "), label_words=words)

    def spaced(self, rows: Sequence[RowTexts]) -> "TaskTexts":
        """Return the texts with such a space before the right answer of a rule, if most of the rows ask for it.

        The prompts of ``rows`` count where a field ends the template: some end in a line break.
        """
        rule, end = (template := self.row_template).rule, template.end
        if rule is None or (answer := rule.answer) is None:
            return self
        pairs = [(end or row.prompt[-1:].strip(), row.filled(answer)[:1]) for row in rows]
        bare = [first for last, first in pairs if first and _ENDS_IN_WORD.search(last) and _is_spaced_script(first)]
        if 2 * len(bare) <= len(pairs):
            return self
        document = json.loads(self.completion)
        document["answer"] = f" {document['answer']}"
        completion = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        return replace(self, template=self.template.removesuffix(" "), completion=completion)


def _is_spaced_script(first: str) -> bool:
    return first.isdigit() or first != first.swapcase()


def kind_of(completion: str) -> TaskKind:
    """Return the kind of a task: empty completions go with label words, those with {choice} with choices of the row."""
    if completion == "":
        return TaskKind.CLASSIFICATION
    return TaskKind.CHOICE if "{choice}" in completion else TaskKind.COMPLETION


_NO_YES = ("No", "Yes")  # after a line break, hence without a leading space

BUILTIN_TASKS: Mapping[str, TaskTexts] = {
    "sst2": TaskTexts(
        about="sentiment of a film review; label 0 negative, 1 positive",
        template="{sentence} It was",
        label_words=(" terrible", " great"),
    ),
    "rte": TaskTexts(
        about="does the premise entail the hypothesis; label 0 yes, 1 no",
        template='{premise}\nDoes this mean that "{hypothesis}" is true? Yes or No?\n',
        label_words=("Yes", "No"),
    ),
    "cb": TaskTexts(
        about="what the premise says of the hypothesis; label 0 entailment, 1 contradiction, 2 neutral",
        template='Suppose {premise} Can we infer that "{hypothesis}"? Yes, No, or Maybe?\n',
        label_words=("Yes", "No", "Maybe"),
    ),
    "boolq": TaskTexts(
        about="a question about a passage; label 0 no, 1 yes", template="{passage} {question}?\n", label_words=_NO_YES
    ),
    "wic": TaskTexts(
        about="a word's meaning in two sentences; label 0 different, 1 the same",
        template='Does the word "{word}" have the same meaning in these two sentences? Yes, No?\n'
        "{sentence1}\n{sentence2}\n",
        label_words=_NO_YES,
    ),
    "wsc": TaskTexts(
        about="does the pronoun (span2_text) mean span1_text; label 0 no, 1 yes",
        template="{text}\nIn the previous sentence, "
        'does the pronoun "{span2_text}" refer to {span1_text}? Yes or No?\n',
        label_words=_NO_YES,
    ),
    "multirc": TaskTexts(
        about="is this an answer to the question about the paragraph; label 0 no, 1 yes",
        template='{paragraph}\nQuestion: {question}\nI found this answer "{answer}". Is that correct? Yes or No?\n',
        label_words=_NO_YES,
    ),
    "trec": TaskTexts(
        about="what a question asks for; label 0 abbreviation, 1 entity, 2 description, 3 human, 4 location, 5 number",
        template="Question: {text}\nType:",
        label_words=(" abbreviation", " entity", " description", " human", " location", " number"),
    ),
    "agnews": TaskTexts(
        about="topic of a news item; label 0 world, 1 sports, 2 business, 3 science and technology",
        template="{text}\nTopic:",
        label_words=(" world", " sports", " business", " technology"),
    ),
    "copa": TaskTexts(
        about="the likelier cause or effect; connector is 'because' or 'so', label the right one of choices",
        template="{premise} {connector}",
        completion=" {choice}",
    ),
    "record": TaskTexts(
        about="a passage's missing name; choices are the query with each name put in, label the right one",
        template="{passage}\n-",
        completion=" {choice}",
    ),
    "instruction": TaskTexts(
        about="instruction and response pairs; the loss is that of the response",
        template="### Instruction:\n{instruction}\n\n### Response:\n",
        completion="{response}",
    ),
    "text": TaskTexts(about="plain text, cut into pieces of --max-tokens tokens", template="", completion="{text}"),
    "embedded:reviews": TaskTexts(
        about="the demo: made-up reviews that come with sfnode; label 0 did not like it, 1 liked it",
        template=demo.TEMPLATE,
        label_words=demo.LABEL_WORDS,
    ),
}
