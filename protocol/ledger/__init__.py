"""Door: `Ledger`. The two sets of a run, signed updates and what its owner has stated, each with one way in."""

from protocol.ledger.digest_buckets import PAYLOAD_HASH_BYTES, bitmap_of, bits_of, shard_of
from protocol.ledger.envelope import Envelope, EnvelopeCodec
from protocol.ledger.ledger import Accepted, Ledger, LedgerStatistics, Outcome, Voided
from protocol.ledger.record_store import Archive, records_of, step_of
from protocol.ledger.roster import NO_STATEMENTS, Roster, RosterStatistics
from protocol.ledger.statements import (
    STATEMENT_KEY_BYTES,
    Invitation,
    Statement,
    StatementCodec,
    StatementKind,
    read_invitation,
)

__all__ = [
    "Invitation",
    "Accepted",
    "Archive",
    "Envelope",
    "EnvelopeCodec",
    "Ledger",
    "LedgerStatistics",
    "NO_STATEMENTS",
    "Outcome",
    "PAYLOAD_HASH_BYTES",
    "Roster",
    "RosterStatistics",
    "STATEMENT_KEY_BYTES",
    "Statement",
    "StatementCodec",
    "StatementKind",
    "Voided",
    "bitmap_of",
    "bits_of",
    "read_invitation",
    "records_of",
    "shard_of",
    "step_of",
]
