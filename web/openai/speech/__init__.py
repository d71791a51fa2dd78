"""OpenAI's speech operation."""
