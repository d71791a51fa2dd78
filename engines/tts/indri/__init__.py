"""Speech by an audio language model: Indri."""
