"""Put rows of data into the text templates of a task, which have field names in braces. No tokens here."""

import json
import re
import string
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from unicodedata import normalize

from protocol.errors import OperatorError
from protocol.run import TaskKind, TaskSpec, bounded_json, parse_reward, reward as rules

LABEL_FIELD = "label"
CHOICES_FIELD = "choices"
CHOICE_NAME = "choice"  # stands for each of the row's choices in the completion of a choice task
CHOICES_MIN = 2
ROW_CHARACTERS_MAX = 1 << 20  # of a row's texts: a tokenizer takes some 800 bytes of memory for a rare character
WORD_FIELD = "label as text"  # in rows that `init` makes, where a number alone could be a word; no name in a template
_WHOLE = re.compile(r"([+-]?[0-9]{1,9})(?:[.,]0*)?")  # pandas writes 1.0 where labels are missing, Excel 1,0
_BROKEN = re.compile(r"[+-]?[0-9]*\.[0-9]*[1-9][0-9]*")
_WORDS_SHOWN = 8  # label words

Row = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTexts:
    """Holds a row as texts: its prompt, the texts that may follow (none: the label words), index of the right one.

    ``fields``: what a check of answers reads of the row.
    """

    prompt: str
    following: tuple[str, ...]
    label: int
    fields: tuple[tuple[str, object], ...] = ()

    def filled(self, text: rules.RowText) -> str:
        """Return a text of the rule with the row's fields in it."""
        values = {name: str(value) for name, value in self.fields}
        return text.filled(values.__getitem__)


class TaskTemplate:
    """Fills the two templates of a task. OperatorError when one is malformed or has fields that the kind excludes.

    Attributes:
        words: the label words without their spaces.
        counts_from_0: a number in people's data counts the label words from 0, as in SPEC 5.5. Else some words are
            numbers in another order ("1" to "5", "0.5" to "2.5"), and a number means the word that is written so.
    """

    def __init__(self, task: TaskSpec) -> None:
        self._task = task
        self.rule = parse_reward(task.completion) if task.kind is TaskKind.REWARD else None
        self._checked = () if self.rule is None else tuple(sorted(set(self.rule.fields)))
        self.words = [word.strip() for word in task.label_words]
        wholes = ((place, _WHOLE.fullmatch(word)) for place, word in enumerate(self.words))
        self._numerals = {int(whole[1]): place for place, whole in wholes if whole}
        self.counts_from_0 = all(number == place for number, place in self._numerals.items())
        self.counts_from_0 &= not any(map(_BROKEN.fullmatch, self.words))
        prompt = field_names(task.template, "template")
        following = () if self.rule is not None else field_names(task.completion, "completion")
        self._fields = tuple(dict.fromkeys(name for name in (*prompt, *following) if name != CHOICE_NAME))
        is_complete, what, text, example = {
            TaskKind.CLASSIFICATION: (bool(prompt), "template", task.template, "{sentence} It was"),
            TaskKind.CHOICE: (CHOICE_NAME in following, "completion", task.completion, " {choice}"),
            TaskKind.COMPLETION: (bool(following), "completion", task.completion, "{text}"),
            TaskKind.REWARD: (bool(prompt), "template", task.template, "{prompt}"),
        }[task.kind]
        if not is_complete:
            raise OperatorError(f'{what} {text!r}: name fields of the data in braces, e.g. "{example}"')
        if CHOICE_NAME in prompt or (CHOICE_NAME in following and task.kind is not TaskKind.CHOICE):
            raise OperatorError("template: {choice} stands in the completion of a choice task only")

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the fields that a row needs."""
        further = {
            TaskKind.CLASSIFICATION: (LABEL_FIELD,),
            TaskKind.CHOICE: (CHOICES_FIELD, LABEL_FIELD),
            TaskKind.COMPLETION: (),
            TaskKind.REWARD: tuple(name for name in self._checked if name not in self._fields),
        }
        return (*self._fields, *further[self._task.kind])

    @property
    def wanted(self) -> str:
        """Return the names of a row's fields, as text for messages."""
        return ", ".join(map(repr, self.names))

    @property
    def example(self) -> str:
        """Return a row in JSON, as text for messages."""
        values: dict[str, object] = {LABEL_FIELD: 0, CHOICES_FIELD: ["...", "..."]}
        return json.dumps({name: values.get(name, "...") for name in self.names})

    @property
    def end(self) -> str:
        """Return the literal text that ends every prompt; empty when a field or a brace does."""
        return re.split("[{}]", self._task.template)[-1]

    def empty_field(self, row: object) -> str:
        """Return a field of the prompt, or of the completion, that is empty in the row; else nothing."""
        return next((name for name in self._fields if isinstance(row, dict) and not str(row[name]).strip()), "")

    def numbered(self, row: object, where: str) -> object:
        """Return a row with the number of its label in place of a label word, a choice, digits or a number.

        Choices in JSON, as a table has them, become a list, and a whole number in a text's place its digits.
        What is no label comes back as it is: `texts` refuses it. OperatorError: as for `spelled_names`.
        """
        if not isinstance(row, dict):
            return row
        row = dict(zip(spelled_names(row, self.names, where), row.values(), strict=True))
        found = row | {name: str(row[name]) for name in self._fields if type(row.get(name)) is int}
        if self._task.kind is TaskKind.CHOICE and isinstance(choices := row.get(CHOICES_FIELD), str):
            with suppress(ValueError, RecursionError):
                found[CHOICES_FIELD] = json.loads(choices)
        label = row.get(LABEL_FIELD)
        if not self.counts_from_0 and LABEL_FIELD in row:
            found[LABEL_FIELD] = label = row.get(WORD_FIELD, label)
        if label is not None and hasattr(label, "item"):  # a number of NumPy, as pandas gives it to programs
            found[LABEL_FIELD] = label = label.item()
        is_choice = self._task.kind is TaskKind.CHOICE
        if LABEL_FIELD in self.names and isinstance(label, str | float | Decimal | (str if is_choice else int)):
            listed = found.get(CHOICES_FIELD) if is_choice else self.words
            words = [str(word).strip() for word in listed] if isinstance(listed, list) else []
            text = str(label).strip()
            if words.count(text) != 1:  # some differ in their case alone; an accent may be a character of its own
                *words, text = (normalize("NFC", each.casefold()).replace("\ufe0f", "") for each in (*words, text))
            if words.count(text) == 1:
                found[LABEL_FIELD] = words.index(text)
            elif whole := _WHOLE.fullmatch(text):
                counted = int(whole[1]) if self.counts_from_0 else text
                found[LABEL_FIELD] = self._numerals.get(int(whole[1]), counted)
            elif is_choice and text in tuple(string.ascii_lowercase[: len(words)]):
                found[LABEL_FIELD] = ord(text) - ord("a")
        return found

    def texts(self, row: object, where: str) -> RowTexts:
        """Return the texts of a decoded JSON value; OperatorError begins with ``where``."""
        if not isinstance(row, dict):
            raise OperatorError(f"{where}: a JSON object with {self.wanted} is expected")
        fields: dict[str, str] = {}
        for name in self._fields:
            value = self._value(row, name, where)
            if not isinstance(value, str):
                raise OperatorError(f"{where}: field {name!r} is {_shown(value)}, and not a text")
            fields[name] = _unicode(value, name, where)
        match self._task.kind:
            case TaskKind.CLASSIFICATION:
                choices, label = [], self._label(row, self._task.label_words, where)
            case TaskKind.CHOICE:
                found = self._value(row, CHOICES_FIELD, where)
                texts = found if isinstance(found, list) else []
                if len(texts) < CHOICES_MIN or not all(isinstance(text, str) for text in texts):
                    wanted = 'a list of two or more texts, in JSON as ["yes", "no"]'
                    raise OperatorError(f"{where}: field {CHOICES_FIELD!r} is {_shown(found)}, not {wanted}")
                choices = [_unicode(text, CHOICES_FIELD, where) for text in texts]
                label = self._label(row, choices, where)
            case TaskKind.COMPLETION | TaskKind.REWARD:
                choices, label = [""] if self.rule is None else [], 0
        checked = {name: _compared(self._value(row, name, where), name, where) for name in self._checked}
        template, completion = self._task.template, self._task.completion
        # Before they are filled in: a stranger's template can name a long field a thousand times
        length = _length(template, fields) + sum(_length(completion, {**fields, CHOICE_NAME: each}) for each in choices)
        length += sum(len(str(checked[name])) for name in (self.rule.fields if self.rule else ()))
        if length > ROW_CHARACTERS_MAX:
            what = f"the row's texts have {length:,} characters, and may have {ROW_CHARACTERS_MAX:,}"
            raise OperatorError(f"{where}: {what}: divide them among several rows")
        following = tuple(completion.format(**fields, choice=each) for each in choices)
        if self.rule is not None and self.rule.answer is not None:
            following = (self.rule.answer.filled(lambda name: str(checked[name])),)
        prompt = template.format(**fields)
        return RowTexts(prompt=prompt, following=following, label=label, fields=tuple(checked.items()))

    def _label(self, row: Row, words: Sequence[str], where: str) -> int:
        value = self._value(row, LABEL_FIELD, where)
        if type(value) is not int or not 0 <= value < len(words):
            wanted = f"a whole number of 0 ... {len(words) - 1}, counted from 0, nor one of the words"
            if not self.counts_from_0:  # words that are numbers
                wanted = "one of the words, and does not count them from 0, since some are numbers:"
            shown = ", ".join(_shown(word.strip()) for word in words[:_WORDS_SHOWN])
            more = ", ..." if len(words) > _WORDS_SHOWN else ""
            raise OperatorError(f"{where}: label {_shown(value)} is not {wanted} {shown}{more}")
        return value

    def _value(self, row: Row, name: str, where: str) -> object:
        if name not in row:
            found = _shown(", ".join(map(str, row))) if row else "nothing"
            firsts = {key: value[0] if isinstance(value, list) and value else value for key, value in row.items()}
            within = [key for key, first in firsts.items() if isinstance(first, dict) and name in first]
            alike = [key for key in row if str(key).strip().casefold() == name.casefold()]
            advice = f": rename {_shown(alike[0])} to {name!r}" if alike else ""
            advice = f": give what is in {_shown(within[0])} alone, each row on a line" if within else advice
            raise OperatorError(
                f"{where}: field {name!r} is missing; found {found}, and the run's rows have {self.wanted}{advice}"
            )
        return row[name]


def spelled_names(found: Collection[str], wanted: Sequence[str], where: str) -> list[str]:
    """Return the names of a file's columns, spelled as wanted: an accent may be a character of its own in either.

    OperatorError: two columns have a wanted name.
    """
    forms = {normalize("NFC", name): name for name in wanted}
    names = [each if each in wanted else forms.get(normalize("NFC", str(each)), each) for each in found]
    if twice := [name for name in wanted if names.count(name) > 1]:
        is_accent = len({own for own, name in zip(found, names, strict=True) if name == twice[0]}) > 1
        how = " (an accent has two forms)" if is_accent else ""
        raise OperatorError(f"{where}: two columns are called {twice[0]!r}{how}: rename one")
    return names


def field_names(template: str, what: str) -> tuple[str, ...]:
    """Return the names in braces, in order. OperatorError when ``template`` (a template or completion) is malformed."""
    try:
        parts = [part[1:] for part in string.Formatter().parse(template) if part[1] is not None]
    except ValueError as error:
        raise OperatorError(f"{what} {template!r}: {str(error).lower()}; a brace itself is written twice") from None
    for name, form, conversion in parts:
        plain = rules.FIELD_NAME.fullmatch(name or "") and not form and conversion is None
        if not plain or name in (LABEL_FIELD, CHOICES_FIELD):
            whole = "".join([str(name), *([f"!{conversion}"] if conversion else []), *([f":{form}"] if form else [])])
            raise OperatorError(
                f"{what} {template!r}: {{{whole}}} is not a field of the data: names in braces are plain words, such "
                f"as {{sentence}}, and neither {LABEL_FIELD!r} nor {CHOICES_FIELD!r}; a brace itself is written twice"
            )
    return tuple(str(name) for name, _, _ in parts)


def _length(template: str, values: Mapping[str, str]) -> int:
    """Return the number of characters of the template with these values in it."""
    return sum(len(text) + len(values[name] if name else "") for text, name, _, _ in string.Formatter().parse(template))


def _compared(value: object, name: str, where: str) -> object:
    """Return a value that a rule of rewards compares answers with. OperatorError: SPEC 1.6 does not allow it."""
    if isinstance(value, str):
        return _unicode(value, name, where)
    if type(value) is not int or abs(value) > bounded_json.EXACT_INTEGER_MAX:
        what = f"{where}: field {name!r} is {_shown(value)}, and neither a text nor a whole number"
        raise OperatorError(f"{what}; the run's rule compares answers with it: write it as a text")
    return value


def _unicode(text: str, name: str, where: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise OperatorError(f"{where}: field {name!r} holds half of a surrogate pair, no character") from None
    return text


def _shown(value: object) -> str:
    """Return a value as JSON and tables write it, cut to a line."""
    text = {"None": "null", "True": "true", "False": "false"}.get(repr(value), repr(value))
    return text if len(text) <= 80 else text[:77] + "..."
