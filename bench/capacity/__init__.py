"""How many sessions a core carries: `python -m bench.capacity`."""
