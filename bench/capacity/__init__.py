"""Number of sessions per processor core: `python -m bench.capacity`."""
