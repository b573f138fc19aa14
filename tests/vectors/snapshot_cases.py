"""Vectors of snapshots (SPEC 9.5): the file that a ledger implies, verdicts on files and attestations."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from unittest.mock import patch

from protocol import limits
from protocol.crypto.keys import Signer
from protocol.run.manifest import Manifest
from protocol.state.replica import Replica
from protocol.state.snapshot import AttestationCodec, Snapshot, decode_snapshot_untrusted, encode_snapshot
from protocol.state.snapshot_proof import judge, take_snapshot
from tests.support.ledgers import admit, claim, exclude, seal, signer
from tests.vectors.notation import Case, Document, case, compact, document, judged
from tests.vectors.runs import constant, dense_run, run, texts

_METHOD = {"local_steps": 64, "epoch_steps": 768, "rank": 2}
_RUN = run(_METHOD, steps=2_304)
_WORK = run(_METHOD, steps=2_304, admission={"kind": "open", "pow_bits": 8})
_ALIGNED = run(_METHOD | {"epoch_steps": 1_024}, steps=2_048, schedule=constant(1))
_INVITED = run(_METHOD, steps=2_304, admission={"kind": "invite", "pow_bits": 0})
_DENSE = dense_run({}, steps=2_048)
_OF_4_BITS = dense_run({"clip": 7}, steps=2_048)
_RUNS = {"divided": _RUN, "work": _WORK, "aligned": _ALIGNED, "invite": _INVITED, "dense": _DENSE}
_RUNS |= {"dense, 4 bits": _OF_4_BITS}
_BOUNDS = {1: 127, 2: 32_767, 4: (1 << 31) - 1, 8: (1 << 53) - 1}  # of 8 bytes: the largest that JSON holds exactly
_AUTHORS = (1, 2)


def snapshots() -> Document:
    """snapshots.json"""
    cases = [*_taken(), *_decoded(), *_widths(), *_sizes(), *_shown(), *_proofs(), *_attestations(), *_dense()]
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
    for name, value in {"one byte": 3, "two bytes": 100}.items():
        narrow = seal(_ALIGNED, 1, 64, *[value] * 64)
        replica = _held(_ALIGNED, [narrow, seal(_ALIGNED, 1, 1_024)])
        given = {"manifest": "aligned", "records": [compact(narrow, readable=False)], "step": 1_024}
        found = encode_snapshot(_ALIGNED, take_snapshot(replica, 1_024))
        yield case(f"file with coefficients of {name}", "take", given, {"file": found.hex()})


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
        "cut within an epoch's head": head + epoch + bytes([0, 0, 0, 1]),
        "cut within the coefficients": head + epoch[:9],
        "order: run before step": good[:16] + bytes(36) + good[52:],
    }
    for name, data in files.items():
        found = judged(lambda data=data: _members(data))  # type: ignore[misc]
        yield case(f"file: {name}", "decode", {"manifest": "divided", "file": data.hex()}, found)


def _widths() -> Iterator[Case]:
    """Each width with the numbers at its bounds, and with those that a smaller one holds."""
    head = encode_snapshot(_ALIGNED, take_snapshot(Replica(_ALIGNED), 1_024))

    def decoded(name: str, *epochs: bytes) -> Case:
        data = head + b"".join(epochs)
        found = judged(lambda: _members(data, _ALIGNED))
        return case(f"file: {name}", "decode", {"manifest": "aligned", "file": data.hex()}, found)

    for width, most in _BOUNDS.items():
        least = -most - (width < 8)
        yield decoded(f"width {width}, least and largest", _epoch(0, width, most, least))
        yield decoded(f"width {width}, the largest alone", _epoch(0, width, most))
        yield decoded(f"width {width}, the least alone, at the end", _epoch(0, width, *[0] * 9, least))
        yield decoded(f"width {width} for zeros", _epoch(0, width))
        for smaller in (each for each in _BOUNDS if each < width):
            for value in (_BOUNDS[smaller], -_BOUNDS[smaller] - 1):
                yield decoded(f"a width that is not the least: {width} for {value}", _epoch(0, width, value))
        yield decoded(f"width {width}, a byte short", _epoch(0, width, most)[:-1])
    for width in (0, 3, 5, 6, 7, 9, 16, 255):
        data = (0).to_bytes(4, "big") + bytes([width]) + b"\1" * 10 * width
        yield decoded(f"{width} bytes a coefficient", data)
    yield decoded("an epoch that begins at the step itself", _epoch(1, 1, 5))
    yield decoded("the last epoch below it", _epoch(0, 1, 5))
    yield decoded("an epoch twice, other numbers", _epoch(0, 1, 5), _epoch(0, 1, 6))


def _dense() -> Iterator[Case]:
    """Epochs of one step, each with the rows of its messages first: at least one."""
    steps = (0, 2, 1_023, 1_024)
    records = [seal(_DENSE, author, step, author, *[20 * author - step % 9] * 8) for author in (1, 2) for step in steps]
    records.append(seal(_DENSE, 1, 7, 3, *[0] * 8))
    data = encode_snapshot(_DENSE, take_snapshot(_held(_DENSE, records), 1_024))
    given = {"manifest": "dense", "records": [record.hex() for record in records], "step": 1_024}
    yield case("file of a run with dense cores", "take", given, {"file": data.hex()})
    head = data[:92]
    rows = {name: head + _epoch(3, 1, rows, 5)[:-1] for name, rows in (("one row", 1), ("no row", 0), ("-1 rows", -1))}
    most = _DENSE.authors_max * _DENSE.method.directions
    full = (("most rows", most), ("a row more", most + 1))
    rows |= {name: head + _epoch(3, 4, count, 127 * most)[:-4] for name, count in full}
    rows |= {name: head + _epoch(3, 2, 2, total)[:-2] for name, total in (("a sum above", 255), ("one below", -255))}
    rows |= {"the whole": data, "the last step below": head + _epoch(1_023, 1, 1)[:-1]}
    rows |= {"the step itself": head + _epoch(1_024, 1, 1)[:-1]}
    for name, file in rows.items():
        found = judged(lambda file=file: _members(file, _DENSE))  # type: ignore[misc]
        yield case(f"file, dense: {name}", "decode", {"manifest": "dense", "file": file.hex()}, found)
    head = encode_snapshot(_OF_4_BITS, take_snapshot(_held(_OF_4_BITS, []), 1_024))
    for total in (14, 15, -14, -15):  # of two rows
        file = head + _epoch(3, 1, 2, total)[:-1]
        found = judged(lambda file=file: _members(file, _OF_4_BITS))  # type: ignore[misc]
        given = {"manifest": "dense, 4 bits", "file": file.hex()}
        yield case(f"file, dense, 4 bits: two rows and a sum of {total}", "decode", given, found)


def _epoch(epoch: int, width: int, *values: int) -> bytes:
    """An epoch of ten coefficients; those that are not given are zero."""
    row = [*values, *[0] * (10 - len(values))]
    data = b"".join(value.to_bytes(width, "little", signed=True) for value in row)
    return epoch.to_bytes(4, "big") + bytes([width]) + data


# --- use and proof


def _held(manifest: Manifest, records: list[bytes], statements: Sequence[bytes] = ()) -> Replica:
    """A replica of these statements and records."""
    replica = Replica(manifest)
    for statement in statements:
        replica.add_statement(statement)
    for record in records:
        replica.add(record)
    return replica


def _rounds(manifest: Manifest, *slots: tuple[int, int]) -> list[bytes]:
    return [seal(manifest, author, step) for author, step in slots]


def _written(records: list[bytes]) -> list[object]:
    return [compact(record, readable=False) for record in records]


def _shown() -> Iterator[Case]:
    """Snapshot and what follows it; what the ledger holds below the step is passed over."""
    early, late = _rounds(_RUN, (1, 0), (1, 960), (2, 768)), _rounds(_RUN, (1, 1_024), (2, 1_472), (2, 1_536))
    file = encode_snapshot(_RUN, take_snapshot(_held(_RUN, early), 1_024))
    void = [*late, seal(_RUN, 1, 1_024, *[5] * 64)]
    for name, before, records in (
        ("nothing is held", 0, []),
        ("what follows, held before", 3, late),
        ("what follows, held later", 0, late),
        ("what follows, and what the snapshot covers", 2, [*early[:1], *late, *early[1:]]),
        ("a slot that becomes void later", 2, void),
        ("a slot that was void before", 4, void),
    ):
        replica = _held(_RUN, records[:before])
        replica.use_snapshot(decode_snapshot_untrusted(_RUN, file))
        for record in records[before:]:
            replica.add(record)
        shown = replica.shown()
        epochs = [[epoch, shown.flat(epoch).tolist()] for epoch in shown.epochs()]
        given = {"manifest": "divided", "snapshot": file.hex(), "records": _written(records)}
        yield case(f"shown: {name}", "shown", given, {"epochs": epochs})


def _proofs() -> Iterator[Case]:
    """What a complete replay says of a snapshot."""
    slots = _rounds(_INVITED, (1, 0), (1, 960), (2, 768), (2, 1_024))
    said = [admit(_INVITED, 1), claim(_INVITED, 1, 2)]
    true = take_snapshot(_held(_INVITED, slots, said), 1_024)
    second = seal(_INVITED, 1, 960, *[5] * 64)
    void = take_snapshot(_held(_INVITED, [*slots, second], said), 1_024)
    wrong = true.epochs[0].copy()
    wrong[5] += 1
    lie = replace(true, epochs={**true.epochs, 0: wrong})
    more = replace(true, epochs={**true.epochs, 1: wrong})
    rows: tuple[tuple[str, Snapshot, list[bytes], list[bytes], int], ...] = (
        ("the same updates", true, slots, [], 0),
        ("the same updates, and later ones", true, [*slots, seal(_INVITED, 1, 1_088)], [], 0),
        ("the same updates, a coefficient more", lie, slots, [], 0),
        ("the same updates, other coefficients in another epoch", more, slots, [], 0),
        ("the same updates, an epoch less", replace(true, epochs={0: true.epochs[0]}), slots, [], 0),
        ("an update more", true, [*slots, seal(_INVITED, 2, 64)], [], 0),
        ("a slot void since", true, [*slots, second], [], 0),
        ("a slot void there", void, slots, [], 0),
        ("a lie about other updates", lie, [*slots, seal(_INVITED, 2, 64)], [], 0),
        ("an update less", true, slots[1:], [], 0),
        ("void slots count", void, [*slots[1:], second], [], 0),
        ("an update of another, one less", true, [*slots[1:], seal(_INVITED, 2, 64)], [], 0),
        ("an update less, excluded below the step", true, slots, [exclude(_INVITED, 2, 768)], 4),
        ("an update less, excluded from the step on", true, slots[1:], [exclude(_INVITED, 2, 1_024)], 3),
        ("an update less, an exclusion of nobody known", true, slots[1:], [exclude(_INVITED, 3, 1_023)], 0),
        ("an update less, records suspended", true, slots, [claim(_INVITED, 1, 3)], 4),
    )
    for name, snapshot, records, more_said, after in rows:
        replica = _held(_INVITED, records[:after], said)
        for statement in more_said:
            replica.add_statement(statement)
        for record in records[after:]:
            replica.add(record)
        given: dict[str, object] = {"manifest": "invite", "snapshot": encode_snapshot(_INVITED, snapshot).hex()}
        given |= {"statements_first": [data.hex() for data in said], "records": _written(records)}
        given |= {"statements": [data.hex() for data in more_said], "stated_after": after}
        yield case(f"proof: {name}", "prove", given, {"proof": judge(snapshot, replica).value})


def _sizes() -> Iterator[Case]:
    data = _file(1_024)
    for most in (len(data), len(data) - 1):
        with patch.multiple(limits, SNAPSHOT_BYTES_MAX=most):
            found = judged(lambda: _members(data))
        given = {"manifest": "divided", "file": data.hex(), "file_bytes_max": most}
        yield case(f"file: {len(data)} bytes, {most} allowed", "decode", given, found)


def _members(data: bytes, manifest: Manifest = _RUN) -> dict[str, object]:
    snapshot = decode_snapshot_untrusted(manifest, data)
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
