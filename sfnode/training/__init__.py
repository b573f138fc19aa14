"""Everything that needs torch: models, the perturbed forward pass, tasks, the estimator, the worker process.

Never trio or libp2p: the node talks to the worker through `sfnode.worker_protocol.messages`.
"""

import sys
from typing import Any, cast

# With this package installed transformers fetches native code for some architectures, whatever a configuration says.
# Nothing that comes with a model is run here (docs/threat-model.md): to transformers the package does not exist.
cast(dict[str, Any], sys.modules).setdefault("kernels", None)
# transformers imports torchao wherever it finds it: seconds, and warnings. `quantised` lifts this when asked.
cast(dict[str, Any], sys.modules).setdefault("torchao", None)
