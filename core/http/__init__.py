"""HTTP helpers that every door uses: routes, streamed replies, and which URLs may be fetched."""
