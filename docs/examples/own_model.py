"""Measure updates by hand, on a model of one's own and for a task of one's own; apply them in another order elsewhere.

python docs/examples/own_model.py
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import sfnode

WORDS = {0: "dull flat grey slow thin", 1: "bright warm quick rich bold"}


def make_rows() -> list[dict[str, object]]:
    """Return rows of two kinds: words for nice and for dull things."""
    pairs = [(f"a {one} and {other} film", label) for label in WORDS for one, other in _pairs(WORDS[label].split())]
    return [{"text": text, "label": label} for text, label in pairs]


def _pairs(words: list[str]) -> list[tuple[str, str]]:
    return [(one, other) for one in words for other in words if one != other]


def main() -> None:
    """Let two authors make some steps, each on what both have measured."""
    torch.manual_seed(1)
    tokenizer = sfnode.LocalModel.load("embedded:tiny-opt").tokenizer
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4
    )
    model = sfnode.LocalModel(LlamaForCausalLM(config), tokenizer)
    rows = make_rows()
    run = model.make_run(rows, sfnode.TaskOptions(template="{text} It was", labels=" no, yes"), steps=6)

    ann = sfnode.LocalAuthor(run, model.learner(run, rows[0::2], rows))
    ben = sfnode.LocalAuthor(run, model.learner(run, rows[1::2]))
    before = ann.learner.evaluate()
    for step in range(run.manifest.steps):
        of_ann, of_ben = ann.measure(step), ben.measure(step)  # bytes: signed records, as they travel
        for record in (of_ann, of_ben):
            ann.apply(record)
        for record in (of_ben, of_ann):
            ben.apply(record)
        assert ann.replica.state_digest() == ben.replica.state_digest()
    ann.learner.show(ann.replica.coefficients())
    after = ann.learner.evaluate()
    for found in (before, after):
        print(f"loss {found.loss:.3f}, accuracy {found.accuracy:.2f}")
    assert after.loss < before.loss


if __name__ == "__main__":
    main()
