"""What `whisper_torch` reaches on a GPU, beside what the GPU could reach: `python -m bench.gpu`."""
