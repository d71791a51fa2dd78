"""Decodes audio that a client sends as events, into 16 kHz frames for the session."""

import asyncio
from collections.abc import Iterator, Mapping

import msgspec
import numpy as np

from core.audio import ASR_RATE_HZ, AudioFrame, Pcm, ms_to_samples, samples_to_ms
from core.conversation.events import FormatName
from core.errors import RequestError
from media.resample import Resampler
from pipeline.user_turn.controller import MAX_HELD_MS, MIN_COMMIT_MS
from signaling.realtime.protocol.audio_format import PCM, decode_audio, rate_of, sample_bytes

SLICE_MS = 200
"""Most audio that is resampled and processed at once, in ms. Other clients have their turn in
between."""


class InputAudioDecoder:
    """Decodes one client's audio, resampled as one stream however it is cut into events."""

    def __init__(self, format_: FormatName = PCM) -> None:
        self._start = 0
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._begin(format_)

    def expect(self, format_: FormatName) -> None:
        """Sets the format of the audio from here on. Earlier audio must have been taken."""
        if format_ != self._format:
            self._begin(format_)

    def push(self, audio: str) -> float:
        """Keeps the audio until it is taken; returns its length in ms. Raises RequestError
        invalid_audio."""
        data = _decode_base64(audio, self._format, "audio")
        if data:  # empty audio would stay in the list
            self._pending.append(data)
            self._pending_bytes += len(data)
        samples = len(data) // sample_bytes(self._format)
        return samples_to_ms(samples, rate_of(self._format))

    @property
    def has_slice(self) -> bool:
        """True if a full slice is kept. Shorter frames cost more: most of a frame's cost does not
        depend on its length."""
        return self._pending_bytes >= self._slice_bytes

    def take(self) -> Iterator[AudioFrame]:
        """Yields the kept audio as frames of at most SLICE_MS."""
        if not self._pending:
            return
        pending = decode_audio(b"".join(self._pending), self._format)
        self._pending.clear()
        self._pending_bytes = 0
        for piece in _slices(pending, self._format):
            frame = AudioFrame(self._resampler.push(piece), ASR_RATE_HZ, self._start)
            self._start = frame.end
            yield frame

    def _begin(self, format_: FormatName) -> None:
        self._format = format_
        samples = ms_to_samples(SLICE_MS, rate_of(format_))
        self._slice_bytes = samples * sample_bytes(format_)
        # In live mode the resampler holds nothing back: audio is processed now, not with the next
        # 20 ms.
        self._resampler = Resampler(rate_of(format_), ASR_RATE_HZ, live=True)


async def decode_recordings(recordings: Mapping[int, str], format_: FormatName) -> dict[int, Pcm]:
    """Decodes the recordings in an item's content parts, to 16 kHz. Raises RequestError
    invalid_audio if one is invalid or too short, or if they are too long together."""
    sent = {index: _recording(audio, format_, index) for index, audio in recordings.items()}
    total_ms = samples_to_ms(sum(map(len, sent.values())), rate_of(format_))
    if total_ms > MAX_HELD_MS:
        raise RequestError(
            f"The item holds {total_ms / 1000:.0f} s of audio; the limit is "
            f"{MAX_HELD_MS // 1000} s.",
            code="invalid_audio",
            param="item.content",
        )
    decoded: dict[int, Pcm] = {}
    for index, pcm in sent.items():
        resampler = Resampler(rate_of(format_), ASR_RATE_HZ)
        pieces: list[Pcm] = []
        for piece in _slices(pcm, format_):
            pieces.append(resampler.push(piece))
            await asyncio.sleep(0)  # three minutes at once would delay every other session
        decoded[index] = np.concatenate([*pieces, resampler.flush()])
    return decoded


def _recording(audio: str, format_: FormatName, index: int) -> Pcm:
    param = f"item.content[{index}].audio"
    pcm = decode_audio(_decode_base64(audio, format_, param), format_)
    if samples_to_ms(len(pcm), rate_of(format_)) < MIN_COMMIT_MS:
        raise RequestError(
            f"'{param}' holds less than {MIN_COMMIT_MS} ms of audio.",
            code="invalid_audio",
            param=param,
        )
    return pcm


def _slices(pcm: Pcm, format_: FormatName) -> Iterator[Pcm]:
    """Cuts audio into slices: resampling five minutes at once would block the event loop for
    0.1 s."""
    step = ms_to_samples(SLICE_MS, rate_of(format_))
    for start in range(0, len(pcm), step):
        yield pcm[start : start + step]


def _decode_base64(audio: str, format_: FormatName, param: str) -> bytes:
    """Decodes base64 to bytes of whole samples. Raises RequestError invalid_audio."""
    try:
        # As strict as Python's base64 module, and four times as fast.
        data = msgspec.convert(audio, bytes)
    except msgspec.ValidationError:
        raise RequestError(
            "The audio is not valid base64.", code="invalid_audio", param=param
        ) from None
    if len(data) % sample_bytes(format_):
        raise RequestError(
            f"The audio of {len(data)} bytes ends within a sample.",
            code="invalid_audio",
            param=param,
        )
    return data
