"""Door: `DataDirectory`. The data directory: records, statements, key, bases, and every durable write."""

from typing import TYPE_CHECKING

from sfnode import lazy_face

if TYPE_CHECKING:
    from sfnode.storage import (
        data_files as data_files,
        disk as disk,
        evaluations as evaluations,
        stored_basis as stored_basis,
    )
    from sfnode.storage.data_directory import (
        DataDirectory as DataDirectory,
        StoredState as StoredState,
        decode_run_file as decode_run_file,
    )
    from sfnode.storage.evaluations import AtStep as AtStep, EvaluatedStep as EvaluatedStep, Gain as Gain
    from sfnode.storage.key_file import KeyFile as KeyFile
    from sfnode.storage.log_export_import import (
        LogSummary as LogSummary,
        Tell as Tell,
        export_log as export_log,
        import_log as import_log,
    )
    from sfnode.storage.run_size import size_of_run as size_of_run
    from sfnode.storage.shell_text import pasteable as pasteable
    from sfnode.storage.statement_files import (
        read_statements_file as read_statements_file,
        write_statements as write_statements,
    )
    from sfnode.storage.store import Store as Store
    from sfnode.storage.stored_basis import DenseSettings as DenseSettings
    from sfnode.storage.stored_records import StoredRecords as StoredRecords
else:
    __getattr__, __dir__ = lazy_face(__name__, __file__)
