"""Door: `rows_of`'s module `row_files`. From files of data to rows with the fields that a task's templates name."""

from sfnode.rows import hub_dataset as hub_dataset, row_files as row_files
from sfnode.rows.row_templates import RowTexts as RowTexts, TaskTemplate as TaskTemplate, field_names as field_names
