"""Codes of sound: `/v1/audio/tokens` and `/v1/audio/detokenize`."""
