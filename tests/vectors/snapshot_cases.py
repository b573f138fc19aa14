"""Vectors of snapshots (SPEC 9.5): the file that a ledger implies, verdicts on files and attestations."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from protocol.crypto.keys import Signer
from protocol.run.manifest import Manifest
from protocol.state.replica import Replica
from protocol.state.snapshot import AttestationCodec, decode_snapshot_untrusted, encode_snapshot
from protocol.state.snapshot_proof import take_snapshot
from tests.support.ledgers import seal, signer
from tests.vectors.notation import Case, Document, case, compact, document, judged
from tests.vectors.runs import run, texts

_METHOD = {"local_steps": 64, "epoch_steps": 768, "rank": 2}
_RUN = run(_METHOD, steps=2_304)
_WORK = run(_METHOD, steps=2_304, admission={"kind": "open", "pow_bits": 8})
_RUNS = {"divided": _RUN, "work": _WORK}
_AUTHORS = (1, 2)


def snapshots() -> Document:
    """snapshots.json"""
    cases = [*_taken(), *_decoded(), *_attestations()]
    return document("Snapshots and who attests them: SPEC 9.5", cases, manifests=texts(_RUNS))


def _records() -> list[bytes]:
    rounds = [seal(_RUN, author, step) for step in range(0, 2_304, 64) for author in _AUTHORS]
    second = seal(_RUN, 1, 128, *(3 for _ in range(64)))
    return [record for record in rounds if record != rounds[9]] + [second]


def _replica() -> Replica:
    replica = Replica(_RUN)
    for record in _records():
        replica.add(record)
    return replica


def _file(step: int) -> bytes:
    return encode_snapshot(_RUN, take_snapshot(_replica(), step))


def _taken() -> Iterator[Case]:
    records = [compact(record, readable=False) for record in _records()]
    for step in (1_024, 2_048):
        given = {"manifest": "divided", "records": records, "step": step}
        yield case(f"file of the steps before {step}", "take", given, {"file": _file(step).hex()})


def _decoded() -> Iterator[Case]:
    good = _file(1_024)
    head, epoch = good[:92], good[92 : 92 + (len(good) - 92) // 2]
    files = {
        "good": good,
        "without an epoch": head,
        "its first epoch alone": head + epoch,
        "a byte less": good[:-1],
        "a byte more": good + b"\0",
        "91 bytes": good[:91],
        "another beginning": b"S" + good[1:],
        "of another run": good[:16] + bytes(32) + good[48:],
        "step 0": good[:48] + bytes(4) + good[52:],
        "step 1025": good[:48] + b"\0\0\4\1" + good[52:],
        "a step beyond the run": good[:48] + b"\0\0\x0c\0" + good[52:],
        "an epoch twice": head + epoch + epoch,
        "epochs that descend": head + good[92 + len(epoch) :] + epoch,
        "an epoch that begins at the step": _file(1_024)[:92] + b"\0\0\0\2" + epoch[4:],
        "width 3": head + epoch[:4] + b"\3" + epoch[5:],
        "a width that is not the least": head + epoch[:4] + b"\1" + b"\0" * (len(epoch) - 5),
        "order: run before step": good[:16] + bytes(36) + good[52:],
    }
    for name, data in files.items():
        found = judged(lambda data=data: _members(data))  # type: ignore[misc]
        yield case(f"file: {name}", "decode", {"manifest": "divided", "file": data.hex()}, found)


def _members(data: bytes) -> dict[str, object]:
    snapshot = decode_snapshot_untrusted(_RUN, data)
    epochs = [[epoch, flat.tolist()] for epoch, flat in snapshot.epochs.items()]
    return {"step": snapshot.step, "digest": snapshot.digest.hex(), "slots": str(snapshot.slots), "epochs": epochs}


def _attestations() -> Iterator[Case]:
    good = _attest(_RUN, signer(1))
    yield _attested("good", _RUN, good)
    for name, data in {
        "a byte less": good[:-1],
        "step 0": good[:32] + bytes(4) + good[36:],
        "a file of 91 bytes": good[:36] + b"\0\0\0\x5b" + good[40:],
        "a file over the bound": good[:36] + b"\4\0\0\1" + good[40:],
        "no key": bytes(32) + good[32:],
        "of another author": signer(2).author + good[32:],
        "another hash": good[:40] + bytes(32) + good[72:],
        "order: step before key": bytes(36) + good[36:],
    }.items():
        yield _attested(name, _RUN, data)
    yield _attested("a key without the work", _WORK, _attest(_WORK, signer(1)))


def _attest(manifest: Manifest, by: Signer) -> bytes:
    data = _file(1_024)
    return AttestationCodec(manifest).attest(by, 1_024, len(data), hashlib.sha256(data).digest()).data


def _attested(name: str, manifest: Manifest, data: bytes) -> Case:
    codec = AttestationCodec(manifest)

    def members() -> dict[str, object]:
        found = codec.decode_untrusted(data)
        codec.check_signed(found)
        return {
            "author": found.author.hex(),
            "step": found.step,
            "length": found.file_bytes,
            "sha256": found.sha256.hex(),
        }

    manifest_name = next(each for each, held in _RUNS.items() if held is manifest)
    given = {"manifest": manifest_name, "attestation": data.hex()}
    return case(f"attestation: {name}", "attestation", given, judged(members))
