"""Doors for speakers and Home Assistant. None is open yet."""
