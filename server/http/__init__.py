"""Serves HTTP for all doors: connections, authentication, errors and health."""
