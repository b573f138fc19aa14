"""Door: `Ledger`. The two sets of a run, signed updates and what its owner has stated, each with one way in."""

from protocol.ledger import digest_buckets
from protocol.ledger.archived_records import Archive, records_of, step_of
from protocol.ledger.envelope import Envelope, EnvelopeCodec
from protocol.ledger.ledger import Ledger, LedgerStatistics
from protocol.ledger.roster import NO_STATEMENTS, Roster, RosterStatistics
from protocol.ledger.statements import STATEMENT_KEY_BYTES, Statement, StatementCodec, StatementKind
