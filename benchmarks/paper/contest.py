"""What takes part, with its grid of learning rates: one run of a rival or of SeedFlood, and what its curve says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count, islice
from typing import Final

from torch import Tensor

from benchmarks.graphs import GRAPHS
from benchmarks.learn.clients import Clients
from benchmarks.learn.plain import Measured, measure
from benchmarks.learn.problems import SMALL, Folders, ModelChoice, Task, load, read
from benchmarks.learn.trials import NetworkTrial
from benchmarks.measures import say
from benchmarks.paper.language import Language
from benchmarks.paper.rivals import Central, CentralMezo, ChocoSgd, DiLoCo, Dsgd, Dzsgd, Problem, Rival, metropolis
from benchmarks.paper.worlds import alike
from protocol.ledger import EnvelopeCodec
from protocol.run import basis_bytes

LOOKS: Final = 4  # at a curve, evenly, and one at the start
_TEST_ROWS: Final = 500  # a standard error of two points; every look at every method's model costs a pass over them
_TOKENS_MAX: Final = {"agnews": 32}  # its rows are twice as long as the others'
SEEDFLOOD: Final = "SeedFlood"
OURS: Final = "sfnode's default"
Make = Callable[[Problem, Tensor, Tensor, float], Rival]  # from the start, the mixing weights and the learning rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A method in the comparison.

    Attributes:
        rates: learning rates to choose from; none: `sfnode init` suggests one.
        steps: of a reported run; tune_steps: of a trial of a learning rate. Plain gossip gets as many: after a third of
            its steps it has learnt next to nothing, at any rate.
        make: a rival; None: SeedFlood, as ``network`` says.
        is_lora: it trains an adapter.
    """

    rates: tuple[float, ...]
    steps: int
    tune_steps: int = 16
    make: Make | None = None
    is_lora: bool = False
    network: NetworkTrial | None = None


_STEPS: Final = 48

ENTRIES: Final[Mapping[str, Entry]] = {
    "DSGD": Entry(rates=(0.003, 0.01, 0.03, 0.1), steps=_STEPS, tune_steps=_STEPS, make=Dsgd),
    "ChocoSGD": Entry(rates=(0.003, 0.01, 0.03, 0.1), steps=_STEPS, tune_steps=_STEPS, make=ChocoSgd),
    "DSGD-LoRA": Entry(rates=(0.1, 0.3, 1.0), steps=_STEPS, make=Dsgd, is_lora=True),
    "ChocoSGD-LoRA": Entry(
        rates=(0.1, 0.3, 1.0, 3.0), steps=_STEPS, tune_steps=_STEPS, make=ChocoSgd, is_lora=True
    ),
    "DiLoCo": Entry(
        rates=(1e-4, 3e-4, 1e-3), steps=_STEPS, make=lambda p, start, w, rate: DiLoCo(p, start, len(w), rate)
    ),
    "AdamW, central": Entry(
        rates=(3e-4, 1e-3, 3e-3), steps=_STEPS, make=lambda p, start, w, rate: Central(p, start, len(w), rate)
    ),
    "DZSGD": Entry(rates=(3e-4, 1e-3, 3e-3), steps=_STEPS, make=Dzsgd),
    "DZSGD-LoRA": Entry(rates=(0.03, 0.1, 0.3), steps=_STEPS, make=Dzsgd, is_lora=True),
    "MeZO, central": Entry(
        rates=(3e-4, 1e-3, 3e-3), steps=_STEPS, make=lambda p, start, w, rate: CentralMezo(p, start, len(w), rate)
    ),
    SEEDFLOOD: Entry(
        rates=(1e-4, 3e-4, 1e-3),
        steps=_STEPS,
        network=NetworkTrial(
            steps=_STEPS, tune_steps=_STEPS, rates=(), rank=32, core="canonical", scalar="raw", directions=1,
            schedule="constant",
        ),
    ),
    OURS: Entry(
        rates=(), steps=_STEPS, network=NetworkTrial(steps=_STEPS, tune_steps=_STEPS, rates=(), core="dense")
    ),
}  # fmt: skip

_REAL_STEPS: Final = 24
# Of a real model, what two cores bear: a step of sixteen clients' gradients by all weights takes them a minute.
_REAL_RATES: Final = {
    "DSGD-LoRA": (0.03, 0.1, 0.3),
    "ChocoSGD-LoRA": (0.03, 0.1, 0.3),
    "AdamW, central": (1e-3, 3e-3, 1e-2),
}
REAL_ENTRIES: Final[Mapping[str, Entry]] = {
    **{
        name.replace("AdamW", "AdamW-LoRA"): replace(
            ENTRIES[name], rates=rates, steps=_REAL_STEPS, tune_steps=_REAL_STEPS, is_lora=True
        )
        for name, rates in _REAL_RATES.items()
    },
    SEEDFLOOD: replace(ENTRIES[SEEDFLOOD], rates=(1e-5, 3e-5, 1e-4)),
    OURS: ENTRIES[OURS],
}


def entries_of(model: ModelChoice) -> Mapping[str, Entry]:
    """What is compared on this model, by name."""
    return ENTRIES if model == SMALL else REAL_ENTRIES


def shortened(task: Task) -> Task:
    """The task as this laboratory can afford it."""
    tokens = min(task.max_tokens, _TOKENS_MAX.get(task.name, task.max_tokens))
    return replace(task, test_rows=min(task.test_rows, _TEST_ROWS), max_tokens=tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Who takes part, and how they are connected.

    Attributes:
        graph: a name in `benchmarks.graphs.GRAPHS`.
        rows: examples of a client in each step, on each side of a direction.
    """

    clients: int = 16
    graph: str = "ring"
    rows: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run; the same trial gives the same curve."""

    name: str
    task: Task
    rate: float | None
    seed: int
    steps: int
    is_test: bool
    looks: int = LOOKS
    world: World = field(default_factory=World)
    model: ModelChoice = SMALL

    @property
    def title(self) -> str:
        """For people, and for a file's name."""
        rate = "suggested" if self.rate is None else f"{self.rate:g}"
        where = f"{self.world.clients} on a {self.world.graph}"
        what = f"{self.steps} steps {'test' if self.is_test else 'tune'} seed {self.seed}"
        model = "" if self.model == SMALL else f"{self.model.title} "
        return f"{model}{self.task.name} {self.name} {where} {rate} {what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """What was seen of a run, each list by look: accuracy 0 ... 1, loss, bytes over one edge in one direction, steps.

    Attributes:
        disagreement: root mean square distance of the clients' weights from their mean, at the end.
    """

    steps: list[int]
    accuracy: list[float]
    loss: list[float]
    sent_bytes: list[float]
    disagreement: float = 0.0


def play(trial: Trial, folders: Folders) -> Curve:
    """Train from the base model to the end."""
    steps, accuracy, loss, sent = [], [], [], []
    entry = entries_of(trial.model)[trial.name]
    run = _rival(trial, entry, folders) if entry.make else _network(trial, entry, folders)
    every = max(1, trial.steps // trial.looks)
    looked_at = {*range(0 if trial.is_test else every, trial.steps, every), trial.steps}
    disagreement = 0.0
    for step, seen in enumerate(islice(run, trial.steps + 1)):
        if step not in looked_at:
            continue
        is_base = step == 0 and entry.make is not None
        found = _base(folders, trial.model, trial.task) if is_base else seen.judge(trial.task.test_rows)
        steps.append(step)
        accuracy.append(round(found.accuracy, 4))
        loss.append(round(found.loss, 4))
        sent.append(seen.sent_bytes)
        disagreement = seen.disagreement()
        say(f"{trial.title}: step {step:5,}, {seen.sent_bytes:14,.0f} bytes, {100 * found.accuracy:5.1f} %")
    return Curve(steps=steps, accuracy=accuracy, loss=loss, sent_bytes=sent, disagreement=disagreement)


@cache
def _base(folders: Folders, model: ModelChoice, task: Task) -> Measured:
    """Where every rival starts, on the test file: looked at once for all of them."""
    return measure(load(folders, model), read(folders, model, task, is_test=True), task.test_rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    sent_bytes: float
    judge: Callable[[int], Measured]
    disagreement: Callable[[], float]


def _rival(trial: Trial, entry: Entry, folders: Folders) -> Iterator[_Seen]:
    data, model = read(folders, trial.model, trial.task, is_test=trial.is_test), load(folders, trial.model)
    shards = alike([each.label for each in data.examples], trial.world.clients, trial.seed)
    problem = Language(model, data, shards, rows=trial.world.rows, seed=trial.seed, is_lora=entry.is_lora)
    mixing = metropolis(GRAPHS[trial.world.graph](trial.world.clients), trial.world.clients)
    assert entry.make is not None and trial.rate is not None
    rival = entry.make(problem, problem.start(), mixing, trial.rate)
    for number in count():
        yield _Seen(
            sent_bytes=rival.sent_bytes,
            judge=lambda rows: problem.judged(rival.mean(), rows),
            disagreement=rival.disagreement,
        )
        rival.step(number)


def _network(trial: Trial, entry: Entry, folders: Folders) -> Iterator[_Seen]:
    """All clients hold the same bits, so one model is judged. Each record crosses an edge once in each direction.

    So does the basis of a dense core, before the first step.
    """
    assert entry.network is not None
    data, model = read(folders, trial.model, trial.task, is_test=trial.is_test), load(folders, trial.model)
    recipe = replace(entry.network, steps=trial.steps, clients=trial.world.clients, rows=trial.world.rows)
    clients = Clients(recipe, trial.task, data, model, rate=trial.rate, seed=trial.seed)
    record_bytes = EnvelopeCodec(clients.manifest).record_bytes
    before_bytes = basis_bytes(clients.manifest) if recipe.is_dense else 0
    for number, _ in enumerate(clients.train()):
        sent_bytes = before_bytes + number * trial.world.clients * record_bytes
        yield _Seen(sent_bytes=sent_bytes, judge=clients.measure, disagreement=lambda: 0.0)
