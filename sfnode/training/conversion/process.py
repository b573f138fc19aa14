"""Run a conversion in its own process, which reports a failure in the last line on its standard error."""

import argparse
import sys
from importlib import import_module
from pathlib import Path

from safetensors import SafetensorError

from protocol.errors import OperatorError
from sfnode.model_files import REFUSED, WeightForm
from sfnode.storage import disk


def convert(form: WeightForm, source: Path, out: Path) -> None:
    """Write config.json, safetensors and the tokenizer's files of the model in ``source`` into the folder ``out``.

    OperatorError: the files are malformed, or take more than they may.
    """
    try:
        if form is WeightForm.GGUF:  # a file that its header betrays is refused before the imports below
            import_module("sfnode.training.conversion.gguf_header").check_header(source)
        # Imported for this form alone: pickles need no transformers, which takes 2.5 s.
        module = import_module(f"sfnode.training.conversion.from_{form.value}")
        vars(module)[f"convert_{form.value}"](source, out)
    except MemoryError:
        raise OperatorError(f"{source} takes more memory than such a file may") from None
    except (OSError, SafetensorError) as error:
        raise OperatorError(f"{source} cannot be converted into {out}: {disk.describe_os_error(error)}") from None


def main() -> None:
    """Run the converting process from its command line."""
    parser = argparse.ArgumentParser(description="converts a model's weights; started by sfnode, not by hand")
    parser.add_argument("form", type=WeightForm)
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    try:
        convert(options.form, options.source, options.out)
    except OperatorError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(REFUSED) from None


if __name__ == "__main__":
    main()
