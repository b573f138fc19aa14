"""What the benchmarks' commands have in common: how a mistake ends, lists of numbers, the folder of the documents."""

from __future__ import annotations

from pathlib import Path

import click

from protocol.errors import OperatorError

DOCS = Path(__file__).resolve().parents[1] / "docs"


class Benchmark(click.Command):
    """Ends with one line and code 1 where the operator has made a mistake."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the benchmark, unless what it is to write into our documents would say nothing."""
        docs = ctx.params.get("docs")
        if ctx.params.get("is_quick") and docs is not None and docs.resolve() == DOCS:
            raise click.UsageError("--quick only tries the program: its figures must not go into the documents")
        try:
            return super().invoke(ctx)
        except OperatorError as error:
            raise click.ClickException(str(error)) from None
        except OSError as error:
            if error.filename is None:
                raise
            raise click.ClickException(f"{error.filename}: {error.strerror}") from None


class Numbers(click.ParamType[tuple[int, ...]]):
    """Whole numbers that are separated by commas."""

    name = "numbers"

    def convert(
        self, value: str | tuple[int, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return them in their order; none where the text is empty."""
        if isinstance(value, tuple):
            return value
        try:
            return tuple(map(int, value.split(","))) if value else ()
        except ValueError:
            self.fail(f"{value!r} is not a list of whole numbers separated by commas, such as 0,1", param, ctx)


write_option = click.option(
    "--write", "docs", type=click.Path(path_type=Path, file_okay=False, exists=True), help="Folder docs, to be renewed."
)
