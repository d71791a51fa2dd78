"""What a running process needs: life cycle, metrics, logs, clock, state folder."""
