"""Comparison of response latency with other voice servers: same audio, same wait, same engine
times."""
