"""Devices over HTTP: for the page, the command line and whoever holds the key."""
