"""Everything that needs torch: models, the perturbed forward pass, tasks, the estimator, the worker process.

Never trio or libp2p: the node talks to the worker through `sfnode.worker_messages`.
"""
