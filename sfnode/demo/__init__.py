"""Doors: `model_folder` and `data_file` of the embedded demo: a tiny model, small reviews, a task that joins them.

Only paths and constants live here, so that the command line can name the demo without loading torch.
`tests/demo/make_data.py` and `tests/demo/make_model.py` make the files.
"""

from pathlib import Path

from protocol.errors import OperatorError

__all__ = ["DATA_NAME", "LABEL_WORDS", "MODEL_NAME", "STEPS", "TEMPLATE", "data_file", "model_folder"]

FOLDER = Path(__file__).resolve().parent
MODEL_NAME = "tiny-opt"
DATA_NAME = "reviews"
TEMPLATE = "{sentence} It was"
# Class 0 (did not like it) and 1 (liked it), each one token. Pre-training put ` terrible` and ` great` after this
# prompt where they belong, and ` no` and ` yes` now and then without regard to the review: the model starts at chance,
# although it has all it needs to learn the task.
LABEL_WORDS = (" no", " yes")
PRETRAINED_WORDS = (" terrible", " great")  # an upper bound for the task
STEPS = 150  # four nodes learn the task at the default learning rate, in about a minute


def model_folder(name: str = MODEL_NAME) -> Path:
    """Return the folder of an embedded model: config.json, model.safetensors and the tokenizer's files.

    Raises OperatorError when there is no such model.
    """
    names = sorted(path.parent.name for path in FOLDER.glob("*/config.json"))
    if name not in names:
        raise OperatorError(f"there is no embedded model {name!r}; embedded models: {', '.join(names) or 'none'}")
    return FOLDER / name


def data_file(name: str = DATA_NAME, split: str = "train") -> Path:
    """Return the JSONL file (fields `sentence`, `label`) of an embedded data set; split: `train` or `eval`.

    Raises OperatorError when there is no such data set or split.
    """
    names = sorted(f"{path.parent.name}/{path.stem}" for path in FOLDER.glob("*/*.jsonl"))
    if f"{name}/{split}" not in names:
        raise OperatorError(
            f"there is no embedded data {f'{name}/{split}'!r}; embedded data: {', '.join(names) or 'none'}"
        )
    return FOLDER / name / f"{split}.jsonl"
