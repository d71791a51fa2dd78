"""Clients that measurements talk to a server with."""
