"""Models that turn text into vectors or scores, as a service."""
