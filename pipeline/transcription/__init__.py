"""Transcription: from the samples of an utterance to its transcript."""
