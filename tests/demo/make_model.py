"""Makes the demo's model: `python -m tests.demo.make_model` (about four minutes on two cores).

Trains a small byte-level BPE and a small OPT on text of `grammar.py` by plain
back-propagation, partly of the form "review. It was great" or "review. It was terrible".
No sentence of the data set is in that text. Needs torch and transformers.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import OPTConfig, OPTForCausalLM, PreTrainedTokenizerFast

from sfnode.demo import FOLDER, LABEL_WORDS, MODEL_NAME, PRETRAINED_WORDS, TEMPLATE
from tests.demo.grammar import review, statement
from tests.demo.make_data import make_reviews

SEED: Final = 20240918
VOCABULARY: Final = 768  # the grammar knows about 300 words; the rest are bytes and pieces
POSITIONS: Final = 64  # the longest review has fewer than 40 tokens
WIDTH: Final = 128
LAYERS: Final = 3  # a forward pass over 32 rows takes about 15 ms on one core
STEPS: Final = 3000
BATCH: Final = 64
PEAK_RATE: Final = 2e-3
WARM_UP: Final = 100
TOKENIZER_TEXTS: Final = 20_000

REVIEW_SHARE: Final = 0.5  # "review. It was great"
NOISE_SHARE: Final = 0.25  # "review. It was yes", whatever the review says; the rest has no verdict

BOS, PAD = "</s>", "<pad>"  # as OPT does, a text starts with </s>
SPECIAL_TOKENS: Final = ("<s>", PAD, BOS)  # ids 0, 1, 2, as in OPT


def pretraining_text(random: Random, excluded: frozenset[str]) -> Iterator[str]:
    """Endless texts to pre-train on, none of which contains an `excluded` sentence."""
    while True:
        candidate = review(random)
        if candidate.sentence in excluded:
            continue
        draw = random.random()
        prompt = TEMPLATE.format(sentence=candidate.sentence)
        if draw < REVIEW_SHARE:
            yield prompt + PRETRAINED_WORDS[candidate.label]
        elif draw < REVIEW_SHARE + NOISE_SHARE:
            yield prompt + random.choice(LABEL_WORDS)
        else:
            yield f"{statement(random)} {candidate.sentence}"


def make_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE on the texts. Words of the demo's task become one token each."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    bos_id = SPECIAL_TOKENS.index(BOS)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, bos_id)]
    )
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=BOS, eos_token=BOS, pad_token=PAD, model_max_length=POSITIONS
    )
    for word in (*LABEL_WORDS, *PRETRAINED_WORDS):
        assert len(wrapped(word, add_special_tokens=False)["input_ids"]) == 1, word
    return wrapped


def make_model(generator: torch.Generator) -> OPTForCausalLM:
    """A fresh OPT of the demo's shape; matrices are drawn from the generator, N(0, 0.02)."""
    config = OPTConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        word_embed_proj_dim=WIDTH,
        ffn_dim=4 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        max_position_embeddings=POSITIONS,
        dropout=0.0,
        pad_token_id=SPECIAL_TOKENS.index(PAD),
        bos_token_id=SPECIAL_TOKENS.index(BOS),
        eos_token_id=SPECIAL_TOKENS.index(BOS),
    )
    model = OPTForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(std=0.02, generator=generator)
    return model


def pretrain(model: OPTForCausalLM, tokenizer: PreTrainedTokenizerFast, texts: Iterator[str]) -> None:
    """Train the model in place by AdamW on next-token prediction; padding does not count."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / WARM_UP, 1.0) * max(1.0 - step / STEPS, 0.01)
    )
    for step in range(STEPS):
        batch = tokenizer([next(texts) for _ in range(BATCH)], return_tensors="pt", padding=True)
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        loss = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 250 == 0 or step == STEPS - 1:
            print(f"step {step}/{STEPS}, loss {loss.item():.3f}", flush=True)


def save(model: OPTForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write float16 weights, config and tokenizer as `from_pretrained` reads them."""
    model.half()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for path in sorted(folder.iterdir()):
        path.chmod(0o644)  # safetensors makes its file readable for its owner only
        print(f"{path}: {path.stat().st_size} bytes")


def main() -> None:
    """Make the model and write it next to this file."""
    torch.set_num_threads(2)
    excluded = frozenset(row.sentence for rows in make_reviews() for row in rows)
    texts = pretraining_text(Random(SEED), excluded)
    tokenizer = make_tokenizer([next(texts) for _ in range(TOKENIZER_TEXTS)])
    model = make_model(torch.Generator().manual_seed(SEED))
    pretrain(model, tokenizer, texts)
    save(model, tokenizer, FOLDER / MODEL_NAME)


if __name__ == "__main__":
    main()
