"""The owner's key: whether a key file is the one that signed a run, and what it signs for those who join."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final

from protocol.crypto import KEY_BYTES, Signer
from protocol.errors import OperatorError
from protocol.ledger import StatementCodec
from protocol.run import Manifest
from sfnode.storage import load_identity

KEY_ENDING: Final = ".key"  # of the file that `sfnode init` writes beside the run's


def check_owner(path: Path, manifest: Manifest) -> Signer:
    """The key in ``path``, which must be the one that signed the run; OperatorError for any other."""
    owner = load_identity(path)
    if owner.author != manifest.owner_key:
        raise OperatorError(
            f"--owner-key {path} is {owner.author.hex()[:16]}, but run {manifest.name!r} was signed by "
            f"{manifest.owner[:16]}: only its owner's statements count. Give the key that `sfnode init` wrote"
        )
    return owner


def new_invitation(manifest: Manifest, owner: Signer) -> str:
    """A one-use invitation to an invite run, as text; another one at each call."""
    return StatementCodec(manifest).invite(owner, secrets.token_bytes(KEY_BYTES)).text
