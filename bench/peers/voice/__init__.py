"""Voice to voice through other voice servers beside ours: same audio, same wait, same times."""
