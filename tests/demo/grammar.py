"""A small grammar that writes English reviews with a known opinion.

Pure and deterministic: a review is a function of the `random.Random` it is given.
All text of the demo, for the model and for the data set, comes from here.
"""

import re
from dataclasses import dataclass
from random import Random
from typing import Final

NEGATIVE: Final = 0
POSITIVE: Final = 1

# Things people review, each with parts that can be good or bad on their own.
TOPICS: Final = {
    "film": ("story", "plot", "cast", "acting", "ending", "dialogue", "script", "hero"),
    "book": ("story", "plot", "style", "ending", "first chapter", "language", "hero"),
    "restaurant": ("food", "soup", "service", "waiter", "menu", "dessert", "kitchen"),
    "hotel": ("room", "bed", "breakfast", "staff", "view", "lobby", "pool"),
    "concert": ("band", "singer", "sound", "stage", "first song", "crowd", "orchestra"),
    "game": ("story", "sound", "level design", "hero", "world", "ending", "music"),
    "trip": ("guide", "bus", "weather", "museum", "boat", "driver", "food"),
}

ADJECTIVES: Final = (
    (  # NEGATIVE
        "awful", "bad", "boring", "dull", "poor", "weak", "clumsy", "dreadful", "horrible", "lousy",
        "tedious", "ugly", "painful", "shallow", "stale", "sloppy", "tiresome", "dismal", "cheap",
        "annoying", "useless", "miserable", "pathetic", "flat", "ridiculous", "disappointing",
    ),
    (  # POSITIVE
        "good", "lovely", "charming", "brilliant", "superb", "delightful", "excellent", "fine",
        "beautiful", "clever", "fresh", "strong", "warm", "wonderful", "elegant", "amazing",
        "perfect", "pleasant", "rich", "splendid", "stunning", "touching", "witty", "fantastic",
        "impressive", "enjoyable",
    ),
)  # fmt: skip
VERBS: Final = (
    ("hated", "disliked", "regretted", "endured", "despised", "could not stand"),
    ("loved", "liked", "enjoyed", "adored", "admired", "could not forget"),
)
EFFECTS: Final = (
    ("made me yawn", "put me to sleep", "drove me away", "left me cold", "ruined my evening", "fell apart"),
    ("made me smile", "won me over", "moved me", "lifted my mood", "saved my evening", "shone"),
)
ADVICE: Final = (
    ("stay away", "save your money", "do not bother", "look elsewhere", "you will be sorry"),
    ("do not miss it", "go at once", "tell your friends", "you will be glad", "give it a try"),
)
DEGREES: Final = ("", "very ", "really ", "quite ", "simply ", "rather ", "truly ", "so ")
OWNERS: Final = ("the", "this", "their", "the whole", "our")
PEOPLE: Final = ("my sister", "my brother", "a friend", "my uncle", "the critic", "our neighbour", "my teacher")
TIMES: Final = ("", "last night ", "last week ", "on Sunday ", "in May ", "this year ", "again ", "yesterday ")
PLAIN: Final = ("old", "new", "long", "short", "small", "big", "famous", "local", "French", "modern")


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """One sentence and the opinion it states: NEGATIVE (0) or POSITIVE (1)."""

    sentence: str
    label: int


def review(random: Random) -> Review:
    """Draw a review; both labels are equally likely."""
    label = random.randrange(2)
    topic = random.choice(sorted(TOPICS))
    pattern = random.choice(_PATTERNS)
    return Review(sentence=_as_sentence(pattern(random, topic, label)), label=label)


def statement(random: Random) -> str:
    """Draw a sentence without any opinion, so that the language is more than reviews."""
    topic = random.choice(sorted(TOPICS))
    person, time = random.choice(PEOPLE), random.choice(TIMES).strip() or "today"
    part, plain = random.choice(TOPICS[topic]), random.choice(PLAIN)
    return _as_sentence(
        random.choice(
            (
                f"{person} talked about the {part} of the {plain} {topic} {time}",
                f"{time} {person} asked me about a {plain} {topic}",
                f"the {topic} has a {plain} {part} and another {part}",
                f"{person} wrote about the {plain} {topic} and its {part}",
            )
        )
    )


def _as_sentence(text: str) -> str:
    text = re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", " ".join(text.split()))
    return f"{text[0].upper()}{text[1:]}."


def _adjective(random: Random, label: int) -> str:
    return random.choice(DEGREES) + random.choice(ADJECTIVES[label])


def _part(random: Random, topic: str) -> str:
    """A thing to judge: the topic itself or one of its parts."""
    noun = random.choice((topic, *TOPICS[topic]))
    return f"{random.choice(OWNERS)} {noun}"


def _clause(random: Random, topic: str, label: int) -> str:
    """A clause with one opinion, negated in a third of the cases."""
    part, opposite = _part(random, topic), 1 - label
    return random.choice(
        (
            f"{part} was {_adjective(random, label)}",
            f"{part} {random.choice(EFFECTS[label])}",
            f"{part} was not {random.choice(('', 'very ', 'really '))}{random.choice(ADJECTIVES[opposite])}",
            f"I {random.choice(VERBS[label])} {part}",
            f"{random.choice(PEOPLE)} {random.choice(VERBS[label])} {part}",
            f"{part} was never {random.choice(ADJECTIVES[opposite])}",
        )
    )


def _single(random: Random, topic: str, label: int) -> str:
    return f"{random.choice(TIMES)}{_clause(random, topic, label)}"


def _agreeing(random: Random, topic: str, label: int) -> str:
    return f"{_clause(random, topic, label)} and {_clause(random, topic, label)}"


def _contrast(random: Random, topic: str, label: int) -> str:
    """Two opinions; the one after `but` counts."""
    return f"{_clause(random, topic, 1 - label)}, but {_clause(random, topic, label)}"


def _concession(random: Random, topic: str, label: int) -> str:
    """Two opinions; the one that `although` introduces does not count."""
    return f"although {_clause(random, topic, 1 - label)}, {_clause(random, topic, label)}"


def _noun_phrase(random: Random, topic: str, label: int) -> str:
    words = ADJECTIVES[label]
    adjective = random.choice(words)
    plain = random.choice(("", *(f"{word} " for word in PLAIN)))
    other = random.choice(words)
    return random.choice(
        (
            f"what a {adjective} {plain}{topic} with a {other} {random.choice(TOPICS[topic])}",
            f"{random.choice(TIMES)}we found a {adjective} {plain}{topic}, {other} and {random.choice(words)}",
            f"a {adjective}, {other} {plain}{topic}",
        )
    )


def _advised(random: Random, topic: str, label: int) -> str:
    return f"{_clause(random, topic, label)}, so {random.choice(ADVICE[label])}"


_PATTERNS: Final = (_single, _single, _agreeing, _contrast, _concession, _noun_phrase, _advised)
