"""Two ways into the pipeline: a live session, and a single request (one-shot response)."""
