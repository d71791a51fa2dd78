"""`earshot replay`: plays a recorded session's audio through the present code and shows changes."""
