"""An invitation: what an owner gives out so that its holders are admitted to a run (SPEC 7.7, 8.9)."""

import base64
import binascii
from dataclasses import dataclass

from protocol import limits
from protocol.crypto import KEY_BYTES, SIGNATURE_BYTES, Signer
from protocol.errors import OperatorError

_TOKEN_PREFIX = "invite:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """A token: the secret seed of a key, and the owner's signature over its public half and the number of uses.

    Its holders may have ``uses`` authors admitted. The owner sends ``text`` to the invitee.
    """

    secret: bytes
    signature: bytes
    uses: int = 1

    @property
    def token(self) -> bytes:
        return Signer(self.secret).author

    @property
    def packed(self) -> bytes:
        """Return the token as 96 bytes; for more than one use another one follows (SPEC 8.9)."""
        return self.secret + self.signature + (bytes([self.uses]) if self.uses > 1 else b"")

    @staticmethod
    def unpack(data: bytes) -> "Invitation | None":
        """Return the invitation that `packed` made into ``data``; None if the bytes are none."""
        secret, signature = data[:KEY_BYTES], data[KEY_BYTES : KEY_BYTES + SIGNATURE_BYTES]
        uses = data[KEY_BYTES + SIGNATURE_BYTES :] or b"\1"
        if len(signature) != SIGNATURE_BYTES or len(uses) != 1 or not 1 <= uses[0] <= limits.TOKEN_USES_MAX:
            return None
        found = Invitation(secret=secret, signature=signature, uses=uses[0])
        return found if found.packed == data else None

    @property
    def text(self) -> str:
        """Return the token as one word."""
        return _TOKEN_PREFIX + base64.urlsafe_b64encode(self.packed).decode("ascii")


def read_invitation(text: str) -> Invitation:
    """Parse the text of an invitation. Raises OperatorError when the text is not an invitation."""
    body = text.strip().removeprefix(_TOKEN_PREFIX)
    try:
        found = Invitation.unpack(base64.b64decode(body.encode("ascii"), altchars=b"-_", validate=True))
    except (ValueError, binascii.Error):
        found = None
    # Written again, because Python's decoder takes "+" and "/" as well.
    is_whole = found is not None and base64.urlsafe_b64encode(found.packed).decode("ascii") == body
    if found is None or not is_whole or not text.strip().startswith(_TOKEN_PREFIX):
        raise OperatorError(
            "--invite: not a whole invitation. Copy all that `sfnode run invite` printed in one line, from "
            f"{_TOKEN_PREFIX!r} on, or name a file that holds it: --invite @FILE"
        )
    return found
