"""Servers for measurements: Earshot with stub engines or random weights."""
