"""Which model runs on which hardware: what fits, what is fast enough."""
