"""Doors for telephone calls: AudioSocket of Asterisk."""
