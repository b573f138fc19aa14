"""Door: `encode_log` and `make_report`. Files that travel outside the network: a whole run, an audit report."""

from protocol.documents import audit_report as audit_report
from protocol.documents.audit_report import AuditReport as AuditReport
from protocol.documents.log_file import (
    LoadedLog as LoadedLog,
    encode_log as encode_log,
    load_log_untrusted as load_log_untrusted,
)
