"""Writes the trained model for other programs: a Hugging Face folder, or a LoRA adapter for PEFT.

Both hold exactly the update that the run's integers state: the folder rounds each weight once, to the dtype asked
for; the adapter does not round at all (`adapter.py`).
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from protocol.coefficients import Coefficients
from protocol.manifest import Manifest, TensorKind, TensorSpec
from protocol.errors import OperatorError
from sfnode.training.adapter import LowRankUpdate, low_rank_updates
from sfnode.training.models import check_model, load_causal_lm
from sfnode.training.out_folder import fresh_folder

ORIGIN_FILE: Final = "sfnode.json"  # where the weights come from; other programs ignore it
WEIGHT_SUFFIX: Final = ".weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What is exported.

    Attributes:
        manifest: the run.
        coefficients: its state, from the ledger.
        base_folder: the run's base model; its files are checked against the manifest's hashes.
    """

    manifest: Manifest
    coefficients: Coefficients
    base_folder: Path
