"""OpenAI's transcription and translation operations."""
