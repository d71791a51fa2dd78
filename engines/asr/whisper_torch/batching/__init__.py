"""Step batching: all requests share each step of the decoder, and join or leave between steps."""
