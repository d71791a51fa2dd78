"""`earshot replay`: a recorded session's sound through the code as it is now, and what changed."""
