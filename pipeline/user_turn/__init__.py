"""The user's turn: from microphone frames to the end of an utterance."""
