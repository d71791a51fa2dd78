"""Converts the items that a worker gets: bytes to clips, through the codec, and back to bytes."""

from collections.abc import Sequence

import numpy as np

from core.errors import RequestError
from engines.base.codec import CodecItem, CodecModel, CodecResult, Codes, Samples

SAMPLE_SCALE = 32768.0
"Value of an int16 sample that stands for 1."


def convert(model: CodecModel, items: Sequence[CodecItem]) -> list[CodecResult]:
    """Returns the result of each item, in their order. Items of one task and one number of
    codebooks are computed together. Raises RequestError for a code that the codec does not have."""
    results = [CodecResult(b"")] * len(items)
    groups: dict[tuple[str, int], list[int]] = {}
    for number, item in enumerate(items):
        groups.setdefault((item.task, item.codebooks), []).append(number)
    for (task, codebooks), numbers in groups.items():
        if task == "encode":
            clips = [samples_from_bytes(items[number].data) for number in numbers]
            found = [codes_to_bytes(codes) for codes in model.encode(clips, codebooks)]
        else:
            codes = [codes_from_bytes(items[number].data, codebooks) for number in numbers]
            for clip in codes:
                check_codes(clip, model.info.codebook_size)
            found = [samples_to_bytes(sound) for sound in model.decode(codes)]
        for number, data in zip(numbers, found, strict=True):
            results[number] = CodecResult(data)
    return results


def check_codes(codes: Codes, codebook_size: int) -> None:
    """Raises RequestError if a code is outside the codebook."""
    if codes.size and (codes.min() < 0 or codes.max() >= codebook_size):
        allowed = f"0 to {codebook_size - 1}"
        raise RequestError(f"A code is outside {allowed}.", code="invalid_value", param="codes")


def samples_from_bytes(data: bytes) -> Samples:
    """Returns the samples of little-endian int16 bytes."""
    return np.frombuffer(data, "<i2").astype(np.float32) / np.float32(SAMPLE_SCALE)


def samples_to_bytes(sound: Samples) -> bytes:
    """Returns the samples as little-endian int16 bytes. Louder ones than 1 are clipped."""
    scaled = np.clip(np.rint(sound * SAMPLE_SCALE), -32768, 32767)
    return bytes(scaled.astype("<i2").tobytes())


def codes_from_bytes(data: bytes, codebooks: int) -> Codes:
    """Returns the codes of little-endian int16 bytes, shape (1, codebooks, frames)."""
    return np.frombuffer(data, "<i2").astype(np.int16).reshape(1, codebooks, -1)


def codes_to_bytes(codes: Codes) -> bytes:
    """Returns the codes as little-endian int16 bytes, the first codebook first."""
    return codes.astype("<i2").tobytes()
