"""Door: `rows_of`'s module `row_files`. From files of data to rows with the fields that a task's templates name."""

from sfnode.rows import hub_dataset, row_files, row_slips
from sfnode.rows.row_templates import RowTexts, TaskTemplate, field_names
