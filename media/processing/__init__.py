"""Processing of the microphone signal: echo cancellation and noise suppression."""
