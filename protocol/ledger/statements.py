"""Statements, which the owner of a run signs about it once it has begun, as fixed-width bytes (SPEC 7.7).

Each statement stands on its own: it needs no other one, no order and no date. The roster interprets a set of them.
"""

from dataclasses import dataclass
from enum import IntEnum

from protocol import limits
from protocol.crypto import KEY_BYTES, SIGNATURE_BYTES, Author, Signer, hashing, is_author_key, is_signed
from protocol.errors import Reject, RejectReason
from protocol.run import AdmissionKind, Invitation, Manifest

_SIGNED_TAG = b"sfnode/statement"  # by the owner
_CLAIM_TAG = b"sfnode/claim/1.."  # by the token's key
_STEP_BYTES = 4
STATEMENT_KEY_BYTES = 1 + KEY_BYTES


class StatementKind(IntEnum):
    """First byte of a statement, never renumbered; the claim of a token for n authors has CLAIM + n - 1."""

    ADMIT = 1
    EXCLUDE = 2
    CLAIM = 3


# The kind's byte, what follows it, and the signatures.
_SIZES = {
    StatementKind.ADMIT: 1 + KEY_BYTES + SIGNATURE_BYTES,
    StatementKind.EXCLUDE: 1 + KEY_BYTES + _STEP_BYTES + SIGNATURE_BYTES,
    StatementKind.CLAIM: 1 + 2 * KEY_BYTES + 2 * SIGNATURE_BYTES,
}
_CLAIMS = {StatementKind.CLAIM - 1 + uses: StatementKind.CLAIM for uses in range(1, limits.TOKEN_USES_MAX + 1)}
_EXCLUDES = {int(StatementKind.EXCLUDE): StatementKind.EXCLUDE}
_NAMES = {int(StatementKind.ADMIT): StatementKind.ADMIT, **_EXCLUDES}
# The kinds that a run knows, by first byte.
_PLACES: dict[AdmissionKind, dict[int, StatementKind]] = {
    AdmissionKind.OPEN: _EXCLUDES,
    AdmissionKind.ALLOW_LIST: _NAMES,
    AdmissionKind.INVITE: {**_NAMES, **_CLAIMS},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A decoded statement.

    Attributes:
        kind: its type, which decides the other fields.
        author: the author concerned.
        from_step: in an exclusion, the author's updates of this step and later do not count; else 0.
        token: in a claim, the public key of the invitation; else empty.
        data: the wire bytes, signatures included.
    """

    kind: StatementKind
    author: Author
    from_step: int = 0
    token: bytes = b""
    data: bytes

    @property
    def uses(self) -> int:
        """Return, of a claim, how many authors may claim the token."""
        return self.data[0] - StatementKind.CLAIM + 1

    @property
    def key(self) -> bytes:
        """Return the 33 bytes that are equal for statements about the same thing."""
        return self.data[:STATEMENT_KEY_BYTES]


class StatementCodec:
    """Makes, decodes and checks the statements of one run."""

    def __init__(self, manifest: Manifest) -> None:
        self._owner = manifest.owner_key
        self._steps = manifest.steps
        self._kinds = _PLACES[manifest.admission.kind]
        self._prefix = _SIGNED_TAG + manifest.run_id
        self._claim_prefix = _CLAIM_TAG + manifest.run_id

    # --- making -------------------------------------------------------------------------------------------

    def admit(self, owner: Signer, author: Author) -> bytes:
        body = bytes([StatementKind.ADMIT]) + author
        return body + owner.sign(self._prefix + body)

    def exclude(self, owner: Signer, author: Author, from_step: int) -> bytes:
        """Make the owner's statement that updates of ``author`` from ``from_step`` on, even past ones, do not count."""
        body = bytes([StatementKind.EXCLUDE]) + author + hashing.u32(from_step)
        return body + owner.sign(self._prefix + body)

    def invite(self, owner: Signer, secret: bytes, uses: int = 1) -> Invitation:
        """Make an invitation for ``uses`` authors; ``secret``: 32 random bytes, never used before."""
        body = bytes([StatementKind.CLAIM - 1 + uses]) + Signer(secret).author
        return Invitation(secret=secret, signature=owner.sign(self._prefix + body), uses=uses)

    def claim(self, invitation: Invitation, author: Author) -> bytes:
        """Make the invitee's statement that uses the invitation for ``author``."""
        token = Signer(invitation.secret)
        body = bytes([StatementKind.CLAIM - 1 + invitation.uses]) + token.author + author
        return body + invitation.signature + token.sign(self._claim_prefix + token.author + author)

    def split_untrusted(self, data: bytes) -> list[bytes]:
        """Split statements that stand end to end. Raises Reject."""
        found, start = [], 0
        while start < len(data):
            # [REJECT] SPEC 7.7.1: a kind that the run knows, with its length.
            size = _SIZES[self._kinds[data[start]]] if data[start] in self._kinds else len(data) + 1
            if start + size > len(data):
                raise Reject(RejectReason.STATEMENT_FORMAT, "not a whole number of statements of this run")
            found.append(data[start : start + size])
            start += size
        return found

    # --- checking -----------------------------------------------------------------------------------------

    def decode_untrusted(self, data: bytes) -> Statement:
        """Decode a statement and check everything but keys and signatures. Raises Reject."""
        # [REJECT] SPEC 7.7.1: a kind that the run knows, with its length.
        if not data or data[0] not in self._kinds or len(data) != _SIZES[self._kinds[data[0]]]:
            raise Reject(RejectReason.STATEMENT_FORMAT, "not a statement of a kind that this run knows")
        kind, body = self._kinds[data[0]], data[1:]
        if kind is StatementKind.CLAIM:
            author = Author(body[KEY_BYTES : 2 * KEY_BYTES])
            return Statement(kind=kind, author=author, token=body[:KEY_BYTES], data=data)
        author = Author(body[:KEY_BYTES])
        if kind is StatementKind.ADMIT:
            return Statement(kind=kind, author=author, data=data)
        from_step = int.from_bytes(body[KEY_BYTES : KEY_BYTES + _STEP_BYTES], "big")
        # [REJECT] SPEC 7.7.2: an exclusion begins within the run.
        if from_step >= self._steps:
            text = f"an exclusion from step {from_step} of a run of {self._steps} steps"
            raise Reject(RejectReason.STATEMENT_FORMAT, text)
        return Statement(kind=kind, author=author, from_step=from_step, data=data)

    def check_signed(self, statement: Statement) -> None:
        """Check the costly rules: keys and signatures, at most two of each. Raises Reject."""
        # [REJECT] SPEC 7.7.3: the author, and the token where there is one, are valid keys.
        keys = [key for key in (statement.author, statement.token) if key]
        if not all(is_author_key(key) for key in keys):
            raise Reject(RejectReason.AUTHOR_KEY, "a statement with a key that is not a valid Ed25519 key")
        # [REJECT] SPEC 7.7.4: the owner's signature, and in a claim the token's.
        data, signed_bytes = statement.data, len(statement.data) - SIGNATURE_BYTES
        owners, is_right = data[-SIGNATURE_BYTES:], True
        if statement.kind is StatementKind.CLAIM:
            signed_bytes = 1 + KEY_BYTES
            owners = data[1 + 2 * KEY_BYTES : -SIGNATURE_BYTES]
            claimed = self._claim_prefix + statement.token + statement.author
            is_right = is_signed(statement.token, claimed, data[-SIGNATURE_BYTES:])
        if not is_right or not is_signed(self._owner, self._prefix + data[:signed_bytes], owners):
            raise Reject(RejectReason.STATEMENT_SIGNATURE, "a statement that the run's owner did not sign in this form")
