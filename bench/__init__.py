"""Measurements of a server by clients, at the client's end; they ship with the server."""
