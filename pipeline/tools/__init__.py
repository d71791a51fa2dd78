"""Tools that the language model may call."""
