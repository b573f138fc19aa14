"""Doors: `log_file`, `audit_report`. Files that travel outside the network: a whole run, an audit report."""

from protocol.documents import audit_report, log_file
from protocol.documents.audit_report import AuditReport
