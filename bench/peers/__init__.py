"""The same audio and the same weights through other servers, beside ours. See docs/bench.md."""
