"""``sfnode export``: write the trained model to a folder, from a data directory; no node needs to run."""

from pathlib import Path

import click

from protocol.errors import OperatorError
from sfnode.api.runs import open_run
from sfnode.cli import options
from sfnode.cli.option_values import FolderPath
from sfnode.cli.remembered_options import model_of
from sfnode.extras import check_can_train
from sfnode.run import found_model
from sfnode.status import learning
from sfnode.storage import AtStep, DataDirectory, evaluations
from sfnode.worker_protocol import FLOATS


@click.command()
@options.node_option
@options.local_model_option
@click.option("--out", type=FolderPath, required=True, help="Write the model into this folder.")
@options.at_step_option
@click.option(
    "--format",
    "form",
    type=click.Choice(("model", "peft", "gguf")),
    default="model",
    show_default=True,
    help="Write the whole model, or a LoRA adapter for PEFT or for llama.cpp.",
)
@options.dtype_option
@click.option("--force", is_flag=True, help="Replace an earlier export in the folder; nothing else is replaced.")
@options.json_option
def export(
    data_dir: DataDirectory,
    model: str | None,
    revision: str | None,
    out: Path,
    at_step: AtStep | None,
    form: str,
    dtype: str,
    force: bool,
) -> None:
    """Write the trained model as a Hugging Face folder or an adapter.

    With --dtype bf16 or fp16 the weights are those of a node of that --dtype: what is smaller than a weight's last bit
    is rounded up or down in proportion, so that small updates are not lost. An adapter is always exact, in fp32.

    \b
    Example: sfnode export my-run --out my-model
    """
    is_adapter = form != "model"
    if is_adapter and dtype != FLOATS[0]:
        raise OperatorError(f"--dtype {dtype}: an adapter is written without any rounding, in fp32. Leave --dtype out")
    check_can_train()
    from sfnode.training.export import check_free, export_adapter, export_model
    from sfnode.training.model import loading

    check_free(out, force, (data_dir.path,))
    run = open_run(data_dir.path)
    state = run.state(at_step)
    measured = evaluations.standing(data_dir.evaluations.read(), state.roster)
    if at_step is None and (said := learning.better_before_in_words(measured)):
        click.echo(f"Warning: {said}", err=True)
    coefficients, bases = state.coefficients, run.bases()
    base = found_model(model_of(run.manifest, data_dir, model, revision), run.manifest.model.revision).path
    if is_adapter:
        export_adapter(bases, coefficients, base, out, force, is_gguf=form == "gguf")
    else:
        export_model(bases, coefficients, base, out, loading.compute_dtype(dtype), force)
    digest = coefficients.digest().hex()
    fields = {"folder": str(out), "is_adapter": is_adapter, "state_digest": digest}
    options.print_result(fields, f"written  {out} (state {digest[:16]})")
