"""All code that needs torch, behind several doors: the packages `model`, `task`, `export`, `bench`, and modules here.

This package never imports trio or libp2p: the node talks to the worker through `sfnode.worker_protocol.messages`.
"""

import os
import sys
from typing import cast

_MODULES = cast(dict[str, object], sys.modules)

# Before torch is loaded. OpenMP threads that spin starve each other: with one core busy, `init` took 140 s, not 38.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# oneDNN keeps kernels, and PyTorch descriptions (0 crash it), of 1,024 sizes: 246 MB after 80 in bf16, now 123.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")
os.environ.setdefault("LRU_CACHE_CAPACITY", "64")
# With this package installed, transformers fetches native code for some architectures, regardless of configuration.
# We run nothing that comes with a model (docs/threat-model.md), so we hide the package from transformers.
_MODULES.setdefault("kernels", None)
# transformers imports torchao if it is installed, which takes seconds and warns. `quantised` lifts this on request.
_MODULES.setdefault("torchao", None)
