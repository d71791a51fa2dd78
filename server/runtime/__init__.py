"""Services of a running process: life cycle, metrics, logs, clock and state folder."""
