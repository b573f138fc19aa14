"""A signal that comes at the very beginning of a node ends it in good order, too."""

from __future__ import annotations

import io
import signal
from typing import Any

import pytest
import trio

from protocol.errors import OperatorError
from sfnode.cli.joining import node_run
from sfnode.node import Life
from sfnode.reporter import Reporter


def test_run_node__before_its_first_step__hears_signals_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the first wait of the start a signal killed the node, and Ctrl-C was an error: `interrupted`."""
    handlers: list[Any] = []

    def look(*_arguments: object) -> None:
        handlers.extend(signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT))
        raise OperatorError("enough")

    monkeypatch.setattr(node_run, "_tell_string", look)
    usual = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    options: Any = None
    with pytest.raises(BaseExceptionGroup):
        trio.run(
            node_run._run_until_stopped, options, frozenset(), Reporter(is_json=True, stream=io.StringIO()), Life()
        )
    assert len(handlers) == 2 and not set(handlers) & {*usual, signal.default_int_handler, signal.SIG_DFL}
