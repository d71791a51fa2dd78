"""Speed of `whisper_torch` on a GPU, compared with what the GPU could reach: `python -m
bench.gpu`."""
