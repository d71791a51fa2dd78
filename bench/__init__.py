"""Clients that measure at their own ear; they ship with the server."""
