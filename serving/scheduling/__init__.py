"""Scheduler of ASR requests: queue, admission, costs, worker affinity."""
