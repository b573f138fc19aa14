"""Doors: `log_file`, `audit_report`. Files that travel outside the network: a whole run, an audit report."""

from protocol.documents import audit_report as audit_report, log_file as log_file
from protocol.documents.audit_report import AuditReport as AuditReport
