"""Tasks known by name: prompt, label words and fields, after MeZO's (Malladi et al., arXiv 2305.17333, appendix E).

No torch here: the command line lists them. docs/tasks.md says where the data of each one come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from protocol.run import TaskKind
from sfnode import demo


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTask:
    """Describes a built-in task.

    Attributes:
        about: one line that describes it.
        template, completion, label_words: as in a run's manifest.
    """

    about: str
    template: str
    completion: str = ""
    label_words: tuple[str, ...] = ()

    @property
    def kind(self) -> TaskKind:
        """Return the kind of task that the completion implies."""
        return kind_of(self.completion)


def kind_of(completion: str) -> TaskKind:
    """Return the kind of a task: empty completions go with label words, those with {choice} with choices of the row."""
    if completion == "":
        return TaskKind.CLASSIFICATION
    return TaskKind.CHOICE if "{choice}" in completion else TaskKind.COMPLETION


_NO_YES: Final = ("No", "Yes")  # after a line break, hence without a leading space

BUILTIN_TASKS: Final[Mapping[str, KnownTask]] = {
    "sst2": KnownTask(
        about="sentiment of a film review; label 0 negative, 1 positive",
        template="{sentence} It was",
        label_words=(" terrible", " great"),
    ),
    "rte": KnownTask(
        about="does the premise entail the hypothesis; label 0 yes, 1 no",
        template='{premise}\nDoes this mean that "{hypothesis}" is true? Yes or No?\n',
        label_words=("Yes", "No"),
    ),
    "cb": KnownTask(
        about="what the premise says of the hypothesis; label 0 entailment, 1 contradiction, 2 neutral",
        template='Suppose {premise} Can we infer that "{hypothesis}"? Yes, No, or Maybe?\n',
        label_words=("Yes", "No", "Maybe"),
    ),
    "boolq": KnownTask(
        about="a question about a passage; label 0 no, 1 yes",
        template="{passage} {question}?\n",
        label_words=_NO_YES,
    ),
    "wic": KnownTask(
        about="a word's meaning in two sentences; label 0 different, 1 the same",
        template='Does the word "{word}" have the same meaning in these two sentences? Yes, No?\n'
        "{sentence1}\n{sentence2}\n",
        label_words=_NO_YES,
    ),
    "wsc": KnownTask(
        about="does the pronoun (span2_text) mean span1_text; label 0 no, 1 yes",
        template="{text}\nIn the previous sentence, "
        'does the pronoun "{span2_text}" refer to {span1_text}? Yes or No?\n',
        label_words=_NO_YES,
    ),
    "multirc": KnownTask(
        about="is this an answer to the question about the paragraph; label 0 no, 1 yes",
        template='{paragraph}\nQuestion: {question}\nI found this answer "{answer}". Is that correct? Yes or No?\n',
        label_words=_NO_YES,
    ),
    "trec": KnownTask(
        about="what a question asks for; label 0 abbreviation, 1 entity, 2 description, 3 human, 4 location, 5 number",
        template="Question: {text}\nType:",
        label_words=(" abbreviation", " entity", " description", " human", " location", " number"),
    ),
    "agnews": KnownTask(
        about="topic of a news item; label 0 world, 1 sports, 2 business, 3 science and technology",
        template="{text}\nTopic:",
        label_words=(" world", " sports", " business", " technology"),
    ),
    "copa": KnownTask(
        about="the likelier cause or effect; connector is 'because' or 'so', label the right one of choices",
        template="{premise} {connector}",
        completion=" {choice}",
    ),
    "record": KnownTask(
        about="a passage's missing name; choices are the query with each name put in, label the right one",
        template="{passage}\n-",
        completion=" {choice}",
    ),
    "instruction": KnownTask(
        about="instruction and response pairs; the loss is that of the response",
        template="### Instruction:\n{instruction}\n\n### Response:\n",
        completion="{response}",
    ),
    "text": KnownTask(
        about="plain text, cut into pieces of --max-tokens tokens",
        template="",
        completion="{text}",
    ),
    "embedded:reviews": KnownTask(
        about="the demo: made-up reviews that come with sfnode; label 0 did not like it, 1 liked it",
        template=demo.TEMPLATE,
        label_words=demo.LABEL_WORDS,
    ),
}
