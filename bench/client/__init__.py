"""Clients with which measurements use a server."""
