"""`earshot models`: lists, pulls, checks and measures models."""
