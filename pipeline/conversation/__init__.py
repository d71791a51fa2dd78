"""The conversation: items, history, and the prompt that is made of them."""
