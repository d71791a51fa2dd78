"""The scheduler of model requests: queue, admission, costs, worker affinity."""
