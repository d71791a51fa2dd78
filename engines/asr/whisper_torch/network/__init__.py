"""The Whisper network in torch: weights, features, encoder, decoder and CUDA graphs."""
