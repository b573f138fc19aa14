"""The keys of a run: its owner's, and that of a node that joins, with the work that the run asks for; invitations.

*Backups.* A key in an encrypted file, as JSON: scrypt makes a key of the passphrase, ChaCha20-Poly1305 encrypts the
seed with it. All fields that decryption needs are authenticated together with the seed, so that nobody can change the
costs or the public key in the file. A short check value of the scrypt key distinguishes a wrong passphrase from a
damaged file; each guess of a passphrase still costs one run of scrypt.
"""

import json
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import trio
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from protocol.crypto import KEY_BYTES, Signer
from protocol.errors import OperatorError, Reject
from protocol.ledger import StatementCodec
from protocol.run import AdmissionKind, Invitation, Manifest, has_work, read_invitation, work_of
from protocol.schema import Malformed, from_plain_untrusted
from sfnode.reporter import Reporter
from sfnode.storage import DataDirectory, KeyFile, disk, pasteable

KEY_ENDING = ".key"  # of files that `sfnode init` writes next to the run file
INVITATION_ENDING = ".invite"
TRIES_AT_ONCE = 500  # 10 ms: the longest that a signal has to wait
_REPORT_S = 2.0

_FORMAT = "sfnode/key-backup/1"
_SALT_BYTES = 16
_NONCE_BYTES = 12
_CHECK_BYTES = 2  # one wrong passphrase in 65,536 looks like a damaged file; an attacker learns next to nothing
_N = 1 << 17  # 128 MiB and about half a second for each passphrase that is tried
_R = 8
_N_MAX = 1 << 20  # 1 GiB: the most that a file from elsewhere may make us spend
_FILE_BYTES_MAX = 4_096
PASSPHRASE_LENGTH_MIN = 8


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
    author = None if path.exists() else data_dir.author()
    # A relay's key without the run's work has signed nothing that counts, so that nobody misses it.
    if author is not None and has_work(manifest.admission, manifest.run_id, bytes.fromhex(author)):
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
    own = Signer(seed).author
    if is_training and not has_work(manifest.admission, manifest.run_id, own):
        raise OperatorError(
            f"the key in {path} has {work_of(manifest.run_id, own)} bits of work, and the run asks for "
            f"{manifest.admission.pow_bits}. Move it away, and `sfnode join` finds a new one; or follow the run with "
            "--relay"
        )
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
    while True:
        for _ in range(TRIES_AT_ONCE):
            seed = secrets.token_bytes(KEY_BYTES)
            if has_work(manifest.admission, manifest.run_id, Signer(seed).author):
                return seed
        tries += TRIES_AT_ONCE
        if (now_s := time.monotonic()) - told_s >= _REPORT_S:
            told_s = now_s
            report(tries, now_s - started_s)
        await trio.lowlevel.checkpoint()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyBackup:
    """Holds the content of a backup file. Bytes are hex.

    Attributes:
        format: kind and version.
        author: public key, which identifies a backup without its passphrase.
        n, r, p: costs of scrypt.
        check: first bytes of the digest of the key that scrypt made.
        sealed: the seed, encrypted, with its tag.
    """

    format: str
    author: str
    n: int
    r: int
    p: int
    salt: str
    nonce: str
    check: str
    sealed: str


def write_backup(path: Path, seed: bytes, passphrase: str) -> None:
    """Encrypt the key into a new file of mode 0600; the file is complete or not there. OperatorError."""
    if len(passphrase) < PASSPHRASE_LENGTH_MIN:
        raise OperatorError(f"the passphrase is too short: take {PASSPHRASE_LENGTH_MIN} characters or more")
    salt, nonce = secrets.token_bytes(_SALT_BYTES), secrets.token_bytes(_NONCE_BYTES)
    key = _stretched(passphrase, salt, _N, _R, 1)
    backup = KeyBackup(
        format=_FORMAT,
        author=Signer(seed).author.hex(),
        n=_N,
        r=_R,
        p=1,
        salt=salt.hex(),
        nonce=nonce.hex(),
        check=_check_of(key),
        sealed="",
    )
    sealed = ChaCha20Poly1305(key).encrypt(nonce, seed, _bound(backup))
    data = json.dumps(asdict(backup) | {"sealed": sealed.hex()}, indent=1)
    disk.write_new(path, [data.encode("ascii") + b"\n"], mode=0o600)


def read_backup(path: Path, passphrase: str) -> bytes:
    """Return the seed in a backup. OperatorError: the passphrase is wrong, or the file is damaged or not a backup."""
    backup = _parsed(path)
    try:
        salt, nonce, sealed = (bytes.fromhex(text) for text in (backup.salt, backup.nonce, backup.sealed))
    except ValueError:
        raise _damaged(path, "its bytes are not hexadecimal") from None
    if len(salt) != _SALT_BYTES or len(nonce) != _NONCE_BYTES:
        raise _damaged(path, "a field has another length")
    key = _stretched(passphrase, salt, backup.n, backup.r, backup.p)
    if _check_of(key) != backup.check:
        raise OperatorError(
            f"{path}: the passphrase is wrong. If you are sure of it, the file is damaged: try another copy"
        )
    try:
        seed = ChaCha20Poly1305(key).decrypt(nonce, sealed, _bound(backup))
    except InvalidTag:
        raise _damaged(path, "the passphrase is right, but the content was changed") from None
    if len(seed) != KEY_BYTES or Signer(seed).author.hex() != backup.author:
        raise _damaged(path, "it holds another key than it says")
    return seed


def _parsed(path: Path) -> KeyBackup:
    """Read the fields and check the costs, before scrypt runs. OperatorError."""
    data = disk.read_bytes(path, "the backup")
    try:
        plain: Any = json.loads(data[: _FILE_BYTES_MAX + 1])
        version = plain.get("format") if isinstance(plain, dict) else None
        if isinstance(version, str) and version.startswith("sfnode/key-backup/") and version != _FORMAT:
            raise OperatorError(f"{path} is a backup of format {version!r}; this sfnode reads {_FORMAT!r}: update it")
        backup = from_plain_untrusted(KeyBackup, plain, "backup")
    except (ValueError, RecursionError, Malformed) as error:
        raise _damaged(path, str(error)) from None
    is_power = backup.n > 1 and backup.n & (backup.n - 1) == 0
    if backup.format != _FORMAT or not (is_power and backup.n <= _N_MAX) or backup.r != _R or backup.p != 1:
        raise _damaged(path, "its parameters are not those of a backup")
    return backup


def _damaged(path: Path, why: str) -> OperatorError:
    return OperatorError(f"{path} is damaged, or no backup of a key: {why}. Try another copy")


def _stretched(passphrase: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    """Return the scrypt key, 32 bytes; takes 128 n r bytes of memory. OperatorError: memory is short."""
    try:
        return Scrypt(salt=salt, length=32, n=n, r=r, p=p).derive(passphrase.encode("utf-8"))
    except MemoryError:
        raise OperatorError(f"the backup needs {128 * n * r >> 20} MiB of free memory. Close other programs") from None


def _check_of(key: bytes) -> str:
    return sha256(b"sfnode/key-backup/check" + key).digest()[:_CHECK_BYTES].hex()


def _bound(backup: KeyBackup) -> bytes:
    """Return all fields but the sealed one, in their order, as the bytes that are authenticated."""
    fields = asdict(backup)
    del fields["sealed"]
    return json.dumps(fields).encode("ascii")
