"""Prompts longer than the model's positions: refused when the run is made and when a node joins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from protocol.errors import OperatorError
from sfnode import demo
from sfnode.model_files.resolve import resolve_model
from sfnode.training.described_model import default_max_tokens
from sfnode.training.model.loading import check_positions, positions_of

TINY_OPT_POSITIONS = 64


def test_positions__of_the_embedded_model__bound_the_default() -> None:
    """Found by use: rows of 1,600 tokens made the worker of a 64-position model restart for ever."""
    assert positions_of(demo.model_folder()) == TINY_OPT_POSITIONS
    assert default_max_tokens(resolve_model("embedded:tiny-opt")) == TINY_OPT_POSITIONS
    check_positions(demo.model_folder(), TINY_OPT_POSITIONS)
    with pytest.raises(OperatorError, match="takes 64: make the run with --max-tokens 64"):
        check_positions(demo.model_folder(), TINY_OPT_POSITIONS + 1)


@pytest.mark.parametrize(("config", "positions"), [({"n_positions": 32}, 32), ({}, None)])
def test_positions__named_otherwise_or_not_at_all__are_found_or_unbounded(
    config: dict[str, int], positions: int | None, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert positions_of(tmp_path) == positions
    check_positions(tmp_path, 16)
