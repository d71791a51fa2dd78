"""Step batching: many requests share each step of the decoder."""
