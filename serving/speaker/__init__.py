"""Models that hear who speaks."""
