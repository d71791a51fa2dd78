"""`earshot talk`: a conversation in the terminal."""
