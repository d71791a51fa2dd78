"""Finds where speech starts, pauses and ends in microphone frames."""
