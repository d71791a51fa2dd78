"""Audio that measurements send to each system: speech cut after its last sample, then room tone."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import numpy as np

from bench.client.latency_probe import speech_span
from bench.client.microphone import RATE_HZ
from core.audio import ASR_RATE_HZ, PTIME_MS, Pcm, ms_to_samples
from media.pcm import to_bytes
from media.resample import Resampler

TONE_MS = 700
"Length of the room tone: longer than the endpoint wait, so that no system gets digital silence."

TONE_RMS = 24.0
"Level of the room tone: -63 dBFS, a quiet room."

WAIT_MS = 500
"Time from the last speech sample to the end of the utterance, the same for all systems."

PAUSE_MS = 800
"Least time from the last speech sample to the next utterance."


@dataclass(frozen=True, slots=True)
class BenchUtterance:
    """One clip with its room tone."""

    text: str
    "Words of the clip, or the name of its recording."
    pcm: Pcm
    "Audio at RATE_HZ, the Realtime API's rate."
    begin: int
    end: int
    "First and one past the last sample of speech in `pcm`."

    @property
    def speech_s(self) -> float:
        """Time from the start of the clip to the end of speech."""
        return self.end / RATE_HZ

    def at_asr_rate(self) -> tuple[Pcm, int]:
        """Returns (audio at 16 kHz, one past its last sample of speech)."""
        resampler = Resampler(RATE_HZ, ASR_RATE_HZ)
        pcm = np.concatenate([resampler.push(self.pcm), resampler.flush()])
        return pcm, self.end * ASR_RATE_HZ // RATE_HZ


def make_utterance(text: str, pcm: Pcm, seed: int = 0) -> BenchUtterance:
    """Cuts `pcm`, at RATE_HZ, after its last sample of speech and adds room tone.

    seed: seed of the room tone.
    """
    begin, end = speech_span(pcm, RATE_HZ) or (0, len(pcm))
    noise = np.random.default_rng(seed).normal(0, TONE_RMS, ms_to_samples(TONE_MS, RATE_HZ))
    tone = noise.astype(np.int16)
    return BenchUtterance(text, np.concatenate([pcm[:end], tone]), begin, end)


BytesSender = Callable[[bytes], Awaitable[None]]
"Function that sends PCM bytes to a system."


async def send_in_real_time(pcm: Pcm, began_at: float, send: BytesSender) -> None:
    """Sends PCM at 16 kHz in real time: each frame when its last sample has been spoken.

    began_at: time of the first sample, on the event loop's clock.
    """
    clock = asyncio.get_running_loop().time
    frame = ms_to_samples(PTIME_MS, ASR_RATE_HZ)
    for start in range(0, len(pcm), frame):
        part = pcm[start : start + frame]
        await sleep_until(began_at + (start + len(part)) / ASR_RATE_HZ, clock)
        await send(to_bytes(part))


async def sleep_until(at: float, clock: Callable[[], float]) -> None:
    """Sleeps until `at`, in seconds of `clock`; returns at once if this time has passed."""
    await asyncio.sleep(max(0.0, at - clock()))
