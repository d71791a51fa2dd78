"""A client of OpenAI-compatible HTTP servers."""
