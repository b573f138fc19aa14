"""Door: `encode_log` and `make_report`. Files that travel outside the network: a whole run, an audit report."""

from protocol.documents.audit_report import AuditReport, decode_report_untrusted, deviation, make_report
from protocol.documents.log_file import LoadedLog, encode_log, load_log_untrusted

__all__ = [
    "AuditReport",
    "LoadedLog",
    "decode_report_untrusted",
    "deviation",
    "encode_log",
    "load_log_untrusted",
    "make_report",
]
