"""Model servers that run as separate programs: how they are started, watched and ended."""
