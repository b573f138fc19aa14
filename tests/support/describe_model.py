"""Describes a run's model to the tests that ask for it: python -m tests.support.describe_model PICKLED"""

import pickle
import sys

from sfnode.model_files.resolve import resolve_model
from sfnode.training.described_model import describe_run

if __name__ == "__main__":
    model, task, data = pickle.loads(bytes.fromhex(sys.argv[1]))
    described = describe_run(resolve_model(model), "linear", task, data)
    sys.stdout.buffer.write(pickle.dumps((described.spec, described.tensors)))
