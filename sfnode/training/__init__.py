"""What needs torch, in rooms that are doors of their own: `model`, `task`, `export`, `bench`; so are the modules here.

Never trio or libp2p: the node talks to the worker through `sfnode.worker_protocol.messages`.
"""

import os
import sys
from typing import cast

_MODULES = cast(dict[str, object], sys.modules)

# Before torch is loaded: OpenMP threads sleep at a barrier. Spinning ones starve whatever else runs on the same cores,
# and each other: beside one busy core, `init` on the embedded model took over 140 s with them, 38 s without.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# With this package installed transformers fetches native code for some architectures, whatever a configuration says.
# Nothing that comes with a model is run here (docs/threat-model.md): to transformers the package does not exist.
_MODULES.setdefault("kernels", None)
# transformers imports torchao wherever it finds it: seconds, and warnings. `quantised` lifts this when asked.
_MODULES.setdefault("torchao", None)
