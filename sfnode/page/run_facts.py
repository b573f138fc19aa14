"""Put the manifest into words, for the page, and compute each author's share of the run over time."""

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from protocol import limits
from protocol.crypto import Author
from protocol.ledger import EnvelopeCodec, Ledger
from protocol.run import Manifest
from sfnode.quality_figures import Quality
from sfnode.reporter import counted, printable
from sfnode.run import purpose_of

CELLS = 40  # parts of the drawn run: a phone still has some pixels for each


def facts_of(manifest: Manifest) -> list[tuple[str, str]]:
    """Return the manifest's values as (name, text), in the order of display."""
    task, method, schedule = manifest.task, manifest.method, manifest.schedule
    quality = Quality.of(task)
    labels = ", ".join(repr(word) for word in task.label_words)
    message = f"{EnvelopeCodec(manifest).record_bytes:,} bytes"
    if method.is_dense:
        numbers = f"{manifest.numbers - 1:,} numbers of {method.number_bits} bits"
        learnt = [
            ("Subspace", f"published basis, a core of {method.core_rows} x {method.rank} in each tensor"),
            ("Message", f"{message}: {numbers}, of at most {counted(method.directions, 'row')}"),
        ]
    else:
        learnt = [
            ("Subspace", f"random basis, rank {method.rank}, renewed each {method.epoch_steps:,} steps"),
            ("Directions", f"{method.directions} of a step, {method.core.value}, on {counted(method.sides, 'side')}"),
            ("Distance", f"2^{method.epsilon_exp}"),
            ("Message", message),
        ]
    return [
        ("Run", manifest.name),
        ("Run id", manifest.run_id.hex()),
        ("Learns", printable(purpose_of(task))),
        ("Owner", manifest.owner),
        ("Admission", manifest.admission.in_words()),
        ("Authors at most", f"{manifest.authors_max:,}"),
        ("Model", f"{manifest.model.id} {manifest.model.revision[:12]}".strip()),
        ("Trained", f"{len(manifest.tensors):,} tensors"),
        ("Task", task.kind.value),
        ("Template", task.template),
        *([("Reward", task.completion)] if quality.is_reward else []),
        *([("Labels", labels)] if labels else []),
        ("Raises", quality.name) if quality.is_reward else ("Lowers", task.objective.value),
        ("Data", task.data),
        ("Rows of a batch", f"{task.batch_rows:,}, of at most {task.max_tokens:,} tokens"),
        ("Steps", f"{manifest.steps:,}, and {manifest.staleness} ahead of the slowest at most"),
        *learnt,
        ("Learning rate", f"{schedule.kind.value}, weights {schedule.weight_start} to {schedule.weight_end}"),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """Holds one author's contribution to a run.

    Attributes:
        updates: number of valid updates.
        void_slots: steps for which the author has signed two payloads.
        last_step: step of the newest valid update; -1 if there is none.
        excluded_from: first step that the owner has excluded; None if the author is not excluded.
        cells: for each of CELLS equal parts of the run, the percentage of the author's slots with a valid update,
            0...100.
    """

    author: Author
    updates: int
    void_slots: int
    last_step: int
    excluded_from: int | None
    cells: tuple[int, ...]


def contributions_to(ledger: Ledger, manifest: Manifest) -> list[Contribution]:
    """Return the contribution of every author in the ledger, most updates first.

    They come from the ledger's bitmaps, without reading a record: a microsecond per author, span and part of the run.
    """
    starts = [manifest.steps * number // CELLS for number in range(CELLS + 1)]
    held: dict[Author, list[int]] = defaultdict(lambda: [0] * CELLS)
    void: dict[Author, int] = defaultdict(int)
    last: dict[Author, int] = {}
    for span in ledger.slots.spans():
        first = span * limits.SPAN_STEPS
        parts = _parts_of_span(starts, first)
        for author in ledger.slots.authors_in(span):
            bucket, cells = ledger.slots.bucket(span, author), held[author]
            for cell, mask in parts:
                cells[cell] += (bucket.valid & mask).bit_count()
            void[author] += bucket.void.bit_count()
            if bucket.valid:
                last[author] = first + bucket.valid.bit_length() - 1
    # Rounded up: an author has one slot in every ``local_steps`` steps. A part of a short run may have none.
    slots = [max(1, -(-(end - start) // manifest.method.local_steps)) for start, end in pairwise(starts)]
    found = [
        Contribution(
            author=author,
            updates=sum(cells),
            void_slots=void[author],
            last_step=last.get(author, -1),
            excluded_from=ledger.roster.excluded_from(author),
            cells=tuple(min(100, 100 * count // most) for count, most in zip(cells, slots, strict=True)),
        )
        for author, cells in held.items()
    ]
    return sorted(found, key=lambda each: (-each.updates, each.author))


def _parts_of_span(starts: list[int], first: int) -> list[tuple[int, int]]:
    """Return the cells that share steps with the span that begins at ``first``, each with the bitmap of its offsets."""
    found = []
    for cell, (start, end) in enumerate(pairwise(starts)):
        low, high = (min(limits.SPAN_STEPS, max(0, step - first)) for step in (start, end))
        if low < high:
            found.append((cell, (1 << high) - (1 << low)))
    return found
