"""Doors for live audio: I/O shells around sessions, with the codec beside each."""
