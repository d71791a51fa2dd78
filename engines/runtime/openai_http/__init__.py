"""HTTP client for OpenAI-compatible language model servers."""
