"""Finds out who speaks when in a recording."""
