"""One target in a process of its own under atheris; libFuzzer ends the process. Started by ``tests.fuzz``."""

from __future__ import annotations

import importlib
import shlex
import sys
from functools import lru_cache

import atheris

from tests.fuzz.catalogue import BY_NAME, INSTRUMENTED, bounded, load

if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    with atheris.instrument_imports(include=list(INSTRUMENTED)):
        target = load(BY_NAME[name])
    # The real verifier, but asked once about the same bytes: it is pure, and takes most of the time of some inputs.
    verifier = importlib.import_module("protocol.crypto.keys")
    for name in ("protocol.ledger.envelope", "protocol.run.manifest"):
        vars(importlib.import_module(name))["is_signed"] = lru_cache(maxsize=65_536)(vars(verifier)["is_signed"])
    # libFuzzer starts itself again by its first argument, through a shell, when it merges.
    itself = f"{shlex.quote(sys.executable)} -m tests.fuzz.engine {name}"
    atheris.Setup([itself, *arguments], bounded(target.check))
    atheris.Fuzz()
