"""Door: `Ledger`. The two sets of a run, signed updates and what its owner has stated, each with one way in."""

from protocol.ledger import digest_buckets as digest_buckets
from protocol.ledger.envelope import Envelope as Envelope, EnvelopeCodec as EnvelopeCodec
from protocol.ledger.ledger import (
    Accepted as Accepted,
    Ledger as Ledger,
    LedgerStatistics as LedgerStatistics,
    Outcome as Outcome,
    Voided as Voided,
)
from protocol.ledger.records_on_disk import Archive as Archive, records_of as records_of, step_of as step_of
from protocol.ledger.roster import (
    NO_STATEMENTS as NO_STATEMENTS,
    Roster as Roster,
    RosterStatistics as RosterStatistics,
)
from protocol.ledger.statements import (
    STATEMENT_KEY_BYTES as STATEMENT_KEY_BYTES,
    Invitation as Invitation,
    Statement as Statement,
    StatementCodec as StatementCodec,
    StatementKind as StatementKind,
    read_invitation as read_invitation,
)
