"""Writes small GGUF files, valid and invalid ones."""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Q8_0 = 8
"Code of the type of the tensor: 32 values in 34 bytes."


def gguf_bytes(
    entries: Mapping[str, str | int | Sequence[str]] | None = None,
    *,
    architecture: str = "llama",
    shape: Sequence[int] = (64, 2),
    tensor_type: int = Q8_0,
    data_bytes: int = 136,
    version: int = 3,
) -> bytes:
    """Returns a file with one tensor. `data_bytes`: bytes that follow the header."""
    values = {
        "general.architecture": architecture,
        "general.name": "Tiny",
        f"{architecture}.context_length": 512,
        "tokenizer.ggml.tokens": ["a", "b", "c"],
        "tokenizer.chat_template": "{{ messages }}",
        **(entries or {}),
    }
    header = b"GGUF" + struct.pack("<IQQ", version, 1, len(values))
    for name, value in values.items():
        header += _text(name) + _value(value)
    header += _text("output.weight") + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    header += struct.pack("<IQ", tensor_type, 0)
    return header + bytes(-len(header) % 32) + bytes(data_bytes)


def write_gguf(path: Path, **options: Any) -> Path:
    """Writes a usable model, and returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gguf_bytes(**options))
    return path


def _value(value: str | int | Sequence[str]) -> bytes:
    match value:
        case str():
            return struct.pack("<I", 8) + _text(value)
        case int():
            return struct.pack("<II", 4, value)
        case _:
            items = b"".join(map(_text, value))
            return struct.pack("<IIQ", 9, 8, len(value)) + items


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data
