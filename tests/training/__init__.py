"""What needs torch: models, tasks, estimates, weights."""
