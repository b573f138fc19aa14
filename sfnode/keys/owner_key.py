"""The owner's key: checks that a key file is the one that signed a run, and makes invitations with it."""

import secrets
from pathlib import Path

from protocol.crypto import KEY_BYTES, Signer
from protocol.errors import OperatorError
from protocol.ledger import Invitation, StatementCodec
from protocol.run import Manifest
from sfnode.storage import KeyFile

KEY_ENDING = ".key"  # of files that `sfnode init` writes next to the run file
INVITATION_ENDING = ".invite"


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
