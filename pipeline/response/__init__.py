"""Responses: their order, how they are made, and how they are delivered."""
