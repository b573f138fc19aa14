"""The owner's key: whether a key file is the one that signed a run."""

from __future__ import annotations

from pathlib import Path

from protocol.crypto import Signer
from protocol.errors import OperatorError
from protocol.run import Manifest
from sfnode.storage import load_identity


def check_owner(path: Path, manifest: Manifest) -> Signer:
    """The key in ``path``, which must be the one that signed the run; OperatorError for any other."""
    owner = load_identity(path)
    if owner.author != manifest.owner_key:
        raise OperatorError(
            f"--owner-key {path} is {owner.author.hex()[:16]}, but run {manifest.name!r} was signed by "
            f"{manifest.owner[:16]}: only its owner's statements count. Give the key that `sfnode init` wrote"
        )
    return owner
