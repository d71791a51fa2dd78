"""HTTP client for OpenAI-compatible servers of language models and voices."""
