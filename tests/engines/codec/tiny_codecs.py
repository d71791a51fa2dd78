"""Shapes of codecs so small that a test runs them in a second."""

TINY_MIMI = {
    "hidden_size": 32,
    "num_filters": 4,
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "upsample_groups": 32,
    "sliding_window": 20,
    "codebook_size": 64,
    "codebook_dim": 16,
    "vector_quantization_hidden_dimension": 16,
    "num_quantizers": 16,
}
TINY_ENCODEC = {
    "hidden_size": 16,
    "num_filters": 4,
    "num_lstm_layers": 1,
    "codebook_size": 64,
    "target_bandwidths": [0.9, 3.6],
}
