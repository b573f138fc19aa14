"""``sfnode ask``: show what the model answers before and after training."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from sfnode.api.runs import open_run
from sfnode.cli import options
from sfnode.cli.remembered_options import model_of
from sfnode.extras import check_can_train
from sfnode.reporter import printable, waiting
from sfnode.run import found_model
from sfnode.storage import AtStep, DataDirectory, evaluations

if TYPE_CHECKING:
    from sfnode.training.model_questions import Reply


@click.command()
@click.argument("questions", metavar="TEXT...", nargs=-1, required=True)
@options.data_dir_option
@options.local_model_option
@options.at_step_option
@options.number_option(
    "--tokens", 40, "Write at most this many tokens, where the task is to go on with a text.", most=1 << 20
)
@options.dtype_option
@options.json_option
def ask(
    questions: tuple[str, ...],
    data_dir: DataDirectory,
    model: str | None,
    revision: str | None,
    at_step: AtStep | None,
    tokens: int,
    dtype: str,
) -> None:
    """Ask the model something, before its training and after it. TEXT fills the field of the run's prompt.

    A run that learns from rewards shows what each answer gets, too, where TEXT is a JSON object with all that its rule
    reads; the model ends its answer by itself, or after the rule's number of tokens.

    \b
    Example: sfnode ask "a charming and affecting journey"
             sfnode ask --data-dir ~/.sfnode/my-rte '{"premise": "It rained.", "hypothesis": "It was dry."}'
    """
    check_can_train()
    run = open_run(data_dir.path)
    state, manifest = run.state(at_step), run.manifest
    folder = found_model(model_of(manifest, data_dir, model, revision), manifest.model.revision).path
    with waiting("loading the model and asking it, as on each call", is_json=options.is_json()):
        from sfnode.training.model import loading
        from sfnode.training.model_questions import ask_model

        found = ask_model(folder, run.bases(), state.coefficients, questions, loading.compute_dtype(dtype), tokens)
    words, lines = [word.strip() for word in manifest.task.label_words], list[str]()
    for each in found:
        before, after = printable(_shown(each.before, words)), printable(_shown(each.after, words))
        lines += [printable(each.question), f"  {evaluations.ALONE:<15}  {before}", f"  {evaluations.NOW:<15}  {after}"]
    gain = data_dir.gain.standing(state.roster)
    lines.append(f"gain: {evaluations.HOW_TO_MEASURE if gain is None else gain.in_words()}")
    options.print_result([asdict(each) for each in found], "\n".join(lines))


def _shown(reply: "Reply", words: list[str]) -> str:
    """Return the answer as text; where the task has label words, each word with its probability, best first."""
    if not reply.shares:
        reward = "" if reply.reward is None else f"  (reward {reply.reward:.2f})"
        return f"{reply.text.strip()}{reward}"
    if not words:
        return f"{reply.text} ({max(reply.shares):.0%})"
    ordered = sorted(zip(reply.shares, words, strict=True), reverse=True)
    return ", ".join(f"{word} {share:.0%}" for share, word in ordered)
