"""OpenAI's Responses operations."""
