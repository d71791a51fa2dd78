"""Doors (interfaces for clients) for live audio. Each has a codec without I/O, and a shell of I/O
around sessions."""
