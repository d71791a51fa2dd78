"""Detects the language of a text and of each clause, for the choice of the voice."""
