"""Calls of tools: the rounds in which the model makes them, their arguments, their results."""
