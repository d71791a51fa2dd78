"""Wires the parts of the server together: engines, doors, tools and devices."""
