"""Servers to measure: our own, with stub engines or random weights."""
