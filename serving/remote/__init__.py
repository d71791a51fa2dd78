"""Models that run on another server with OpenAI's API."""
