"""The two ways into the pipeline: a live session, and a single request."""
