"""The Whisper network in torch: weights, encoder, decoder, CUDA graphs."""
