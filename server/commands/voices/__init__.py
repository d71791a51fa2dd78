"""`earshot voices`: voices that are made of recordings, on a running server."""
