"""python -m tests.field: a table on the standard output; the exit code says whether all were met with words."""

from tests.field.trial import main

main()
