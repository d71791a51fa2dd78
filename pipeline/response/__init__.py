"""Responses: which comes next, what makes it, and how it is delivered."""
