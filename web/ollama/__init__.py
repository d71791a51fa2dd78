"""Ollama's REST API, for clients that know no other."""
