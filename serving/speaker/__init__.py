"""Models that recognise speakers."""
