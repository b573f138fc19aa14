"""python -m tests.people: a table on the standard output; the exit code says whether all goals were held."""

from tests.people.stopwatch import main

main()
