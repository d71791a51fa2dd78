"""The conversation: sessions, turns, transcription, playout, history and tools."""
