"""The keys of a run: its owner's, and that of a node that joins, with the work that the run asks for; invitations."""

import secrets
import time
from collections.abc import Callable
from pathlib import Path

import trio

from protocol.crypto import KEY_BYTES, Signer
from protocol.errors import OperatorError, Reject
from protocol.ledger import Invitation, StatementCodec, read_invitation
from protocol.run import AdmissionKind, AdmissionSpec, Manifest, has_work, work_of
from sfnode.reporter import Reporter
from sfnode.storage import DataDirectory, KeyFile, pasteable

KEY_ENDING = ".key"  # of files that `sfnode init` writes next to the run file
INVITATION_ENDING = ".invite"
TRIES_AT_ONCE = 500  # 10 ms: the longest that a signal has to wait
_REPORT_S = 2.0


def check_owner(path: Path, manifest: Manifest) -> Signer:
    """Return the key in ``path``. OperatorError unless it is the key that signed the run."""
    owner = KeyFile(path).signer()
    if owner.author != manifest.owner_key:
        raise OperatorError(
            f"--owner-key {path} is {owner.author.hex()[:16]}, but run {manifest.name!r} was signed by "
            f"{manifest.owner[:16]}: only its owner's statements count. Give the key that `sfnode init` wrote"
        )
    return owner


def new_invitation(manifest: Manifest, owner: Signer, uses: int = 1) -> Invitation:
    """Return a new invitation to an invite run, for ``uses`` authors."""
    return StatementCodec(manifest).invite(owner, secrets.token_bytes(KEY_BYTES), uses)


async def node_seed(manifest: Manifest, data_dir: DataDirectory, *, is_training: bool, reporter: Reporter) -> bytes:
    """Return the secret seed of the node's key, made if missing. OperatorError if the key cannot contribute.

    Only a node that trains needs a key with work in it.
    """
    key, path = data_dir.identity, data_dir.identity.path
    if not path.exists() and (author := data_dir.author()) is not None:
        raise OperatorError(
            f"{path} is missing, but the identity {author} has run on this directory, and a new one is never made in "
            f"its place. Restore it: {pasteable('sfnode id restore BACKUP --data-dir', data_dir)}. To be somebody "
            f"else from now on: {pasteable('sfnode id new --out', path)}"
        )
    if is_training and manifest.admission.pow_bits and not path.exists():
        expected = 1 << manifest.admission.pow_bits

        def report(tries: int, seconds: float) -> None:
            left_s = max(0.0, seconds / tries * (expected - tries))
            text = f"looking for a key with {manifest.admission.pow_bits} bits of work: {tries:,} tried of about "
            text += f"{expected:,}, some {left_s:.0f} s more"
            reporter.progress("finding_key", text, tries=tries, tries_expected=expected, seconds=round(seconds, 1))

        key.store(await find_seed(manifest, report))
    seed = key.made_seed()
    if is_training:
        check_work(manifest, Signer(seed).author, str(path))
    return seed


def claim_invitation(manifest: Manifest, text: str, seed: bytes, data_dir: DataDirectory) -> None:
    """Sign and keep the claim of an invitation for this node's key. The node publishes it unless it is used already.

    Raises OperatorError.
    """
    if manifest.admission.kind is not AdmissionKind.INVITE:
        kind = manifest.admission.kind.value
        raise OperatorError(f"--invite does not apply: the run's admission is {kind}. Leave it out")
    codec, invitation = StatementCodec(manifest), read_invitation(text)
    data = codec.claim(invitation, Signer(seed).author)
    try:
        codec.check_signed(codec.decode_untrusted(data))
    except Reject:
        raise OperatorError(
            "--invite: the owner of this run has not signed it; it is for another run. Ask them for one"
        ) from None
    data_dir.statements.keep_claim(data)


async def find_seed(manifest: Manifest, report: Callable[[int, float], None]) -> bytes:
    """Return the secret seed of a new key that has the work of ``manifest`` (SPEC 2.4).

    It takes 2^pow_bits tries on average, each about 20 us of one core. ``report`` is called about every 2 s with the
    tries so far and the seconds.
    """
    tries, started_s = 0, time.monotonic()
    told_s = started_s
    while (seed := search(manifest.admission, manifest.run_id)) is None:
        tries += TRIES_AT_ONCE
        if (now_s := time.monotonic()) - told_s >= _REPORT_S:
            told_s = now_s
            report(tries, now_s - started_s)
        await trio.lowlevel.checkpoint()
    return seed


def search(spec: AdmissionSpec, run_id: bytes) -> bytes | None:
    """Return the seed of a key that has the work of ``spec``; None after TRIES_AT_ONCE in vain, of about 20 us each."""
    for _ in range(TRIES_AT_ONCE):
        seed = secrets.token_bytes(KEY_BYTES)
        if has_work(spec, run_id, Signer(seed).author):
            return seed
    return None


def check_work(manifest: Manifest, author: bytes, where: str) -> None:
    """Raise OperatorError if the run is open and ``author`` lacks the work that it requires."""
    spec = manifest.admission
    if spec.kind is AdmissionKind.OPEN and not has_work(spec, manifest.run_id, author):
        raise OperatorError(
            f"the key in {where} has {work_of(manifest.run_id, author)} bits of work, and the run asks for "
            f"{spec.pow_bits}. Move it away, and `sfnode join` finds a new one; or follow the run with --relay"
        )
