"""Playout of responses, the text that the user heard of them, and barge-in."""
