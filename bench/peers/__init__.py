"""Comparison with other servers, with the same audio and the same weights. See docs/bench.md."""
