"""Speech recognition as a service: how its requests are scheduled, and its models."""
