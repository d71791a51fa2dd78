"""Scheduler of any kind of model: queue, admission, costs, worker affinity."""
