"""Bodies of uploads, as devices and forms send them."""

import io
import wave
from collections.abc import AsyncIterator

import numpy as np
from aiohttp import FormData

from media.files.encode import open_encoder

ONE_TWO = np.repeat(np.array([0, 1000, 2000, 0], np.int16), [8000, 8000, 8000, 16_000])
"At 16 kHz; the scripted recogniser hears `one two`."


def wav(pcm: np.ndarray = ONE_TWO, rate_hz: int = 16_000) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setparams((1, 2, rate_hz, 0, "NONE", ""))
        file.writeframes(pcm.tobytes())
    return out.getvalue()


def flac(pcm: np.ndarray = ONE_TWO) -> bytes:
    encoder = open_encoder("flac", 16_000)
    return encoder.push(pcm) + encoder.finish()


async def pieces(data: bytes, size: int = 2048) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


def audio(codec: str = "", rate_hz: str = "", bits: str = "", channel: str = "") -> dict[str, str]:
    named = {"codec": codec, "sample-rate": rate_hz, "bits": bits, "channel": channel}
    return {f"x-audio-{name}": value for name, value in named.items() if value}


def form(data: bytes, name: str = "audio_file") -> FormData:
    made = FormData()
    made.add_field("other", "x" * 100_000)
    made.add_field(name, data, filename="speech.bin")
    return made
