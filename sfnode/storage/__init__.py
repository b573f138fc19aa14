"""Door: `DataDirectory`. The data directory: records, statements, key, bases, and every durable write."""

from sfnode.storage.data_directory import DataDirectory, decode_run_file
from sfnode.storage.data_files import EMBEDDED, data_spec, evaluation_file, locate, training_file
from sfnode.storage.evaluations import BEST_STEP, AtStep, EvaluatedStep, best_of, has_become_worse
from sfnode.storage.identity import KeyFile
from sfnode.storage.log_export_import import LogSummary, Tell, export_log, import_log
from sfnode.storage.run_size import size_of_run
from sfnode.storage.statement_files import read_statements_file, write_statements
from sfnode.storage.store import Store
from sfnode.storage.stored_bases import (
    BASIS_ENDING,
    UNIT_EXP,
    BasisSpec,
    RenewedBasis,
    basis_beside,
    read_bases,
    read_renewal,
)
from sfnode.storage.stored_records import StoredRecords

__all__ = [
    "AtStep",
    "BASIS_ENDING",
    "BEST_STEP",
    "BasisSpec",
    "DataDirectory",
    "EMBEDDED",
    "EvaluatedStep",
    "KeyFile",
    "LogSummary",
    "RenewedBasis",
    "Store",
    "StoredRecords",
    "Tell",
    "UNIT_EXP",
    "basis_beside",
    "best_of",
    "data_spec",
    "decode_run_file",
    "evaluation_file",
    "export_log",
    "has_become_worse",
    "import_log",
    "locate",
    "read_bases",
    "read_renewal",
    "read_statements_file",
    "size_of_run",
    "training_file",
    "write_statements",
]
