"""Reads files of models, converts them, and finds them on Hugging Face's hub."""
