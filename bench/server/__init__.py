"""Servers for measurements: Earshot with its own engines, stub engines or random weights."""
