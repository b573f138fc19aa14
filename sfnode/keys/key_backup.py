"""A node's key in an encrypted file: scrypt makes a key of the passphrase, ChaCha20-Poly1305 encrypts the seed with it.

The file is JSON. All fields that decryption needs are authenticated together with the seed, so that nobody can change
the costs or the public key in the file. A short check value of the scrypt key distinguishes a wrong passphrase from a
damaged file; each guess of a passphrase still costs one run of scrypt.
"""

import json
import secrets
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from protocol.crypto import KEY_BYTES, Signer
from protocol.errors import OperatorError
from protocol.schema import Malformed, from_plain_untrusted
from sfnode.storage import disk

_FORMAT = "sfnode/key-backup/1"
_SALT_BYTES = 16
_NONCE_BYTES = 12
_CHECK_BYTES = 2  # one wrong passphrase in 65,536 looks like a damaged file; an attacker learns next to nothing
_N = 1 << 17  # 128 MiB and about half a second for each passphrase that is tried
_R = 8
_N_MAX = 1 << 20  # 1 GiB: the most that a file from elsewhere may make us spend
_FILE_BYTES_MAX = 4_096
PASSPHRASE_LENGTH_MIN = 8


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
    if path.exists():
        raise OperatorError(f"{path} exists: a backup is never overwritten. Choose another file")
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
