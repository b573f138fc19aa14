"""Door: `DataDirectory`. The data directory: records, statements, key, bases, and every durable write."""

from typing import TYPE_CHECKING

from sfnode.lazy_faces import lazy_face

if TYPE_CHECKING:
    from sfnode.storage import disk, evaluations, example_files, stored_basis
    from sfnode.storage.data_directory import DataDirectory, decode_run_file
    from sfnode.storage.evaluations import AtStep, EvaluatedStep, Gain
    from sfnode.storage.key_file import KeyFile
    from sfnode.storage.log_export_import import LogProgress, LogSummary, export_log, import_log, merge_ledger
    from sfnode.storage.pasted_commands import pasteable
    from sfnode.storage.record_store import Store
    from sfnode.storage.run_size import size_of_run
    from sfnode.storage.statement_files import read_statements_file, write_statements
    from sfnode.storage.stored_basis import DenseSettings
    from sfnode.storage.stored_records import StoredRecords
else:
    __getattr__, __dir__ = lazy_face(__name__, __file__)
