"""Opus, mono. One packet per call; no thread, no buffering."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from core.audio import PTIME_MS, Pcm, ms_to_samples
from core.errors import RemoteProtocolError
from media.codecs.libopus import LibopusDecoder, LibopusEncoder, OpusError

OPUS_RATE_HZ = 48_000
"RTP counts the timestamps of Opus in it (RFC 7587), whatever is encoded or decoded to."

LEAST_DELAY_MS = 2.5
"""By which sound comes later out of Opus than the packet that carries it: 2.5 ms in its low-delay
mode, 6.5 in the others (RFC 6716 section 2)."""

OPUS_RATES_HZ = (8_000, 12_000, 16_000, 24_000, 48_000)
"From which libopus encodes, and to which it decodes."

MAX_PACKET_BYTES = 1275 * 6 + 12
"The largest packet there can be: 120 ms in six frames of 1275 bytes and their lengths (RFC 6716)."


_EMPTY = np.zeros(0, np.int16)

_SILENCE = b"\xff\xfe"
"""A CELT frame of digital silence (RFC 6716 section 4.3: its silence flag). By it both sides forget
the levels and the pitch from which they predict the next frame."""


class InvalidOpusPacket(RemoteProtocolError):
    """These bytes are not an Opus packet. The decoder stays usable."""

    code = "bad_audio_packet"


@dataclass(frozen=True, slots=True)
class OpusSettings:
    bitrate_bps: int = 32_000
    "Transparent for one voice; music would want more."
    application: Literal["voip", "audio", "lowdelay"] = "lowdelay"
    "lowdelay looks 2.5 ms ahead at a third of voip's CPU; voip (6.5 ms) is for < 24 kbit/s."
    frame_ms: int = PTIME_MS
    "Audio per packet: 10, 20, 40 or 60 ms."
    complexity: int = 5
    "0 to 10, of libopus: WebRTC takes 5 on phones, 9 elsewhere; 10 takes half as long again."

    def __post_init__(self) -> None:
        if not 6_000 <= self.bitrate_bps <= 510_000:
            raise ValueError("bitrate_bps must be in [6000, 510000]")
        if self.application not in ("voip", "audio", "lowdelay"):
            raise ValueError("application must be voip, audio or lowdelay")
        if self.frame_ms not in (10, 20, 40, 60):
            raise ValueError("frame_ms must be 10, 20, 40 or 60")
        if not 0 <= self.complexity <= 10:
            raise ValueError("complexity must be in [0, 10]")


class OpusEncoder:
    """Mono s16 at `rate_hz` (one of OPUS_RATES_HZ) to packets of `settings.frame_ms`.

    Silence is coded until libopus finds nothing else in it (some 350 ms after sound, by a filter
    against constant voltage). Then that packet is given again until there is sound: it is the one
    that libopus would make. Not in SILK, nor above 20 ms: no packet says so there.
    """

    def __init__(self, rate_hz: int, settings: OpusSettings | None = None) -> None:
        settings = settings or OpusSettings()
        if rate_hz not in OPUS_RATES_HZ:
            raise ValueError(f"Opus encodes {OPUS_RATES_HZ} Hz, not {rate_hz}")
        self.rate_hz = rate_hz
        self.frame_samples = ms_to_samples(settings.frame_ms, rate_hz)
        self._encoder = LibopusEncoder(
            rate_hz, settings.application, settings.bitrate_bps, settings.complexity
        )
        self.coded_frames = 0
        "Frames that libopus has seen: all but those of silence that goes on."
        self._silence: bytes | None = None

    def encode(self, pcm: Pcm) -> bytes:
        """One packet. Raises ValueError unless `pcm` is exactly one frame long."""
        if len(pcm) != self.frame_samples:
            raise ValueError(f"{len(pcm)} samples; a frame has {self.frame_samples}")
        if self._silence is not None and not pcm.any():
            return self._silence
        packet = self._coded(pcm)
        # The end of a frame may be heard in the next packet only (LEAST_DELAY_MS): no sound in it.
        self._silence = packet if _is_silence(packet) and not pcm.any() else None
        return packet

    def _coded(self, pcm: Pcm) -> bytes:
        self.coded_frames += 1
        return self._encoder.encode(pcm)


def _is_silence(packet: bytes) -> bool:
    """A single CELT frame (RFC 6716 section 3.1: configurations from 16 on, code 0) of silence."""
    return len(packet) == 3 and packet[0] & 0b10000011 == 0b10000000 and packet[1:] == _SILENCE


class OpusDecoder:
    """Packets (mono or stereo, any mode) to mono s16 at `rate_hz` (one of OPUS_RATES_HZ).

    Below 48 kHz nothing is resampled, and nothing delayed: libopus leaves out what lies above. A
    packet of one to three bytes (DTX) decodes to the comfort noise libopus makes of it.
    """

    def __init__(self, rate_hz: int = OPUS_RATE_HZ) -> None:
        if rate_hz not in OPUS_RATES_HZ:
            raise ValueError(f"Opus decodes to {OPUS_RATES_HZ} Hz, not {rate_hz}")
        self.rate_hz = rate_hz
        self._decoder = LibopusDecoder(rate_hz)
        self._last_samples = 0

    def conceal(self) -> Pcm:
        """libopus's own guess at one lost packet, as long as the last one.

        One after another they fade to the background noise. Empty before the first packet.
        """
        return self._decoder.conceal(self._last_samples) if self._last_samples else _EMPTY

    def decode(self, packet: bytes) -> Pcm:
        """2.5-120 ms of audio. Raises BadAudioPacket; the caller conceals or gives up.

        An empty packet is bad too: to libopus it is a lost one.
        """
        if not 0 < len(packet) <= MAX_PACKET_BYTES:
            raise InvalidOpusPacket(f"Opus packet of {len(packet)} bytes, limit {MAX_PACKET_BYTES}")
        try:
            pcm = self._decoder.decode(packet)
        except OpusError as exc:
            raise InvalidOpusPacket(f"not an Opus packet ({len(packet)} bytes)") from exc
        self._last_samples = len(pcm)
        return pcm
