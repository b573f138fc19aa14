"""The node's Ed25519 key: author of its updates and its libp2p identity. One file, readable by its owner only."""

import os
import secrets
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir

from protocol.crypto import KEY_BYTES, Signer, hashing
from protocol.errors import OperatorError
from sfnode.storage.disk import has_locked, opened_file, os_errors, write_new
from sfnode.storage.pasted_commands import pasteable

IDENTITY_FILE = "identity.key"
_FILE_BYTES_MAX = 1_024  # of a key file: 64 digits, and what an editor may add around them


class KeyFile:
    """Reads, makes and locks one key file: a node's, or a run's owner's."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def signer(self) -> Signer:
        """Return the key. OperatorError if the file is missing, holds no key, or others may know it."""
        return Signer(self.seed())

    def seed(self) -> bytes:
        """Return the 32-byte secret seed; raises as `signer`."""
        path = self.path
        if not path.exists():
            made = f"`{pasteable('sfnode id new --out', path)}` makes a new one, of another author"
            raise OperatorError(f"no identity at {path}: name the key file that you have; {made}")
        return _read_secret(path)

    def made_seed(self) -> bytes:
        """Return the seed; if there is no such file, store a new random seed durably first, mode 0600."""
        if not self.path.exists():
            self.store(secrets.token_bytes(KEY_BYTES))
        return self.seed()

    def store(self, seed: bytes) -> None:
        """Write the key durably, mode 0600. OperatorError if the file exists: a key is never overwritten."""
        write_new(self.path, [seed.hex().encode("ascii") + b"\n"], mode=0o600)

    def link_to(self, key: Path) -> None:
        """Make this a link to the key file ``key``, which stays where it is. Nothing changes if it has this key.

        OperatorError if ``key`` holds no key, or this file holds another one.
        """
        signer = KeyFile(key).signer()
        if self.path.exists():
            if (held := self.signer().author) != signer.author:
                raise OperatorError(
                    f"--key {key} is the key of {signer.author.hex()}, but this node is {held.hex()} ({self.path}). "
                    "Leave --key out, or use another --data-dir"
                )
            return
        self.path.unlink(missing_ok=True)  # a broken link to an earlier place of the key
        self.path.symlink_to(key.resolve())

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Lock the key while the body runs; OperatorError if another node of this machine uses it, or a copy of it."""
        with ExitStack() as opened:
            # NFS locks only a file that is open for writing.
            descriptor = os.open(self.path, os.O_RDWR if os.access(self.path, os.W_OK) else os.O_RDONLY)
            opened.callback(os.close, descriptor)
            is_alone = _is_only_copy if sys.platform == "linux" else _has_locked_of_all_copies
            if not has_locked(descriptor, self.path.resolve()) or not is_alone(self, opened):
                raise OperatorError(
                    f"another node of this machine runs with the key in {self.path.resolve()}, or with a copy of it. "
                    "Two nodes with one key void each other's updates: stop that one, or give this one a key of its "
                    "own (sfnode id new --out FILE)"
                )
            yield


def _is_only_copy(key: KeyFile, opened: ExitStack) -> bool:
    """Mark the key as in use until ``opened`` ends; return whether no other process has marked a copy of it.

    The mark is an abstract Unix socket: it goes with its process, and all users see it, with any folder of temporary
    files. Its name is a hash of the secret and of the socket's own number in the kernel, so nobody without
    the key can make one that keeps a node from starting, or use an old one again.
    """
    seed = key.seed()

    def name(number: bytes) -> bytes:
        return b"sfnode-" + hashing.hash_fields("sfnode/key-in-use", seed, number).hex().encode("ascii")

    mark = opened.enter_context(socket.socket(socket.AF_UNIX))
    own = str(os.fstat(mark.fileno()).st_ino).encode("ascii")
    with suppress(OSError):  # a system that does not list its sockets
        mark.bind(b"\0" + name(own))
        lines = (line.split() for line in Path("/proc/self/net/unix").read_bytes().splitlines())
        return not any(line[6] != own and line[7:] == [b"@" + name(line[6])] for line in lines if len(line) == 8)
    return True


def _has_locked_of_all_copies(key: KeyFile, opened: ExitStack) -> bool:
    """Lock a file named after the key until ``opened`` ends; return False if a node of this user has locked it."""
    with suppress(OSError):  # there is no such folder
        of_all_copies = Path(gettempdir(), f"sfnode-{os.geteuid()}-{key.signer().author.hex()}.lock")
        descriptor = os.open(of_all_copies, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        opened.callback(os.close, descriptor)
        # Where it is another user's, they want to keep this node out.
        return os.fstat(descriptor).st_uid != os.geteuid() or has_locked(descriptor, key.path.resolve())
    return True


def _read_secret(path: Path) -> bytes:
    """Return the seed in a file that only this user can read and has written. OperatorError."""
    with opened_file(path, "the identity") as file, os_errors(f"read the identity {path}"):
        held, data = os.fstat(file.fileno()), file.read(_FILE_BYTES_MAX)
    try:
        seed = bytes.fromhex(data.strip().decode("ascii"))
    except ValueError:
        seed = b""
    if len(seed) != KEY_BYTES:  # looked at first: another file is nobody's secret
        raise OperatorError(f"{path} is not an identity: it must hold 64 hexadecimal digits. Restore it from a backup")
    if held.st_uid != os.geteuid():
        raise OperatorError(
            f"{path} belongs to another user of this machine, who may know the key in it. Choose another place and "
            "make a new key there; if the key is yours, copy it as yourself"
        )
    if held.st_mode & 0o077:
        raise OperatorError(
            f"other users can read the key in {path}: {pasteable('chmod 600', path)}. If one of them may have done "
            "so, make a new one"
        )
    return seed
