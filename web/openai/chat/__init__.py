"""OpenAI's chat operations."""
