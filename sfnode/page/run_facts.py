"""Put the manifest into words, for the page."""

from protocol.ledger import EnvelopeCodec
from protocol.run import Manifest
from sfnode.quality_figures import Quality
from sfnode.reporter import counted, printable
from sfnode.run import purpose_of

Fact = tuple[str, str]


def facts_of(manifest: Manifest) -> list[Fact]:
    """Return the manifest's values as (name, text), in the order of display."""
    task, method, schedule = manifest.task, manifest.method, manifest.schedule
    quality = Quality.of(task)
    labels = ", ".join(repr(word) for word in task.label_words)
    message = f"{EnvelopeCodec(manifest).record_bytes:,} bytes"
    if method.is_dense:
        learnt = [
            ("Subspace", f"published basis, a core of {method.core_rows} x {method.rank} in each tensor"),
            (
                "Message",
                f"{message}: {manifest.numbers - 1:,} numbers of {method.number_bits} bits, of at most "
                f"{counted(method.directions, 'row')}",
            ),
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
