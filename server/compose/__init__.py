"""Puts the server together: engines, doors, tools, devices."""
