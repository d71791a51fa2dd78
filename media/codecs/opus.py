"""Opus codec, mono. Each call takes or gives one packet. No thread, no buffering."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from core.audio import PTIME_MS, Pcm, ms_to_samples
from core.errors import RemoteProtocolError
from media.codecs.libopus import LibopusDecoder, LibopusEncoder, OpusError

OPUS_RATE_HZ = 48_000
"""Rate in which RTP counts the timestamps of Opus (RFC 7587), for every rate of encoding and
decoding."""

LEAST_DELAY_MS = 2.5
"""Shortest delay of decoded audio behind its packet: that of the low-delay mode. The other modes
have 6.5 ms (RFC 6716 section 2)."""

OPUS_RATES_HZ = (8_000, 12_000, 16_000, 24_000, 48_000)
"Rates from which libopus encodes, and to which it decodes."

MAX_PACKET_BYTES = 1275 * 6 + 12
"Largest possible packet: 120 ms in six frames of 1275 bytes, and their lengths (RFC 6716)."


_EMPTY = np.zeros(0, np.int16)

_SILENCE = b"\xff\xfe"
"""Body of a CELT frame of digital silence (RFC 6716 section 4.3: its silence flag). It makes
encoder and decoder forget the levels and the pitch from which they predict the next frame."""


class InvalidOpusPacket(RemoteProtocolError):
    """These bytes are not an Opus packet. The decoder can still be used."""

    code = "bad_audio_packet"


@dataclass(frozen=True, slots=True)
class OpusSettings:
    """Settings of an Opus encoder. Raises ValueError for a value out of range."""

    bitrate_bps: int = 32_000
    "Bits per second, 6000 to 510 000. 32 000 is transparent for one voice; music would need more."
    application: Literal["voip", "audio", "lowdelay"] = "lowdelay"
    """Mode of the encoder. lowdelay looks 2.5 ms ahead and takes a third of voip's CPU; voip
    (6.5 ms) is for less than 24 kbit/s."""
    frame_ms: int = PTIME_MS
    "Audio per packet: 10, 20, 40 or 60 ms."
    complexity: int = 5
    """Complexity of libopus, 0 to 10; more of it takes more processor time. WebRTC uses 5 on phones
    and 9 elsewhere."""

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
    """Encodes mono s16 at `rate_hz` (one of OPUS_RATES_HZ) to packets of `settings.frame_ms`.

    In continued silence libopus makes the same packet again and again, so from the first one on it
    is returned without encoding. The first one comes some 350 ms after the last sound, because of
    libopus's filter against constant voltage. In SILK mode and above 20 ms no packet marks silence,
    so every frame is encoded.

    Example:
        encoder, decoder = OpusEncoder(48_000), OpusDecoder(16_000)
        packet = encoder.encode(pcm48k)     # exactly 960 samples: 20 ms
        pcm16k = decoder.decode(packet)     # 320 samples
    """

    def __init__(self, rate_hz: int, settings: OpusSettings | None = None) -> None:
        """Creates an encoder. Raises ValueError for a rate that Opus does not have."""
        settings = settings or OpusSettings()
        if rate_hz not in OPUS_RATES_HZ:
            raise ValueError(f"Opus encodes {OPUS_RATES_HZ} Hz, not {rate_hz}")
        self.rate_hz = rate_hz
        self.frame_samples = ms_to_samples(settings.frame_ms, rate_hz)
        self._encoder = LibopusEncoder(
            rate_hz, settings.application, settings.bitrate_bps, settings.complexity
        )
        self.coded_frames = 0
        "Number of frames that libopus encoded: all but those of continued silence."
        self._silence: bytes | None = None
        "Packet that is returned for silence; None while silence must be encoded."

    def encode(self, pcm: Pcm) -> bytes:
        """Returns one packet. `pcm`: int16, shape (frame_samples,). Raises ValueError for another
        length."""
        if len(pcm) != self.frame_samples:
            raise ValueError(f"{len(pcm)} samples; a frame has {self.frame_samples}")
        if self._silence is not None and not pcm.any():
            return self._silence
        packet = self._coded(pcm)
        # This packet may still hold the end of the last frame (LEAST_DELAY_MS), so both the packet
        # and the frame must be silent.
        self._silence = packet if _is_silence(packet) and not pcm.any() else None
        return packet

    def _coded(self, pcm: Pcm) -> bytes:
        self.coded_frames += 1
        return self._encoder.encode(pcm)


def _is_silence(packet: bytes) -> bool:
    """True for a single CELT frame (RFC 6716 section 3.1: configurations from 16 on, code 0) of
    silence."""
    return len(packet) == 3 and packet[0] & 0b10000011 == 0b10000000 and packet[1:] == _SILENCE


class OpusDecoder:
    """Decodes packets (mono or stereo, any mode) to mono s16 at `rate_hz` (one of OPUS_RATES_HZ).

    Below 48 kHz audio is neither resampled nor delayed: libopus leaves out the higher frequencies.
    A packet of one to three bytes (DTX) gives libopus's comfort noise.
    """

    def __init__(self, rate_hz: int = OPUS_RATE_HZ) -> None:
        """Creates a decoder. Raises ValueError for a rate that Opus does not have."""
        if rate_hz not in OPUS_RATES_HZ:
            raise ValueError(f"Opus decodes to {OPUS_RATES_HZ} Hz, not {rate_hz}")
        self.rate_hz = rate_hz
        self._decoder = LibopusDecoder(rate_hz)
        self._last_samples = 0

    def conceal(self) -> Pcm:
        """Returns libopus's guess at one lost packet, as long as the last packet. Repeated guesses
        fade to the background noise. Empty before the first packet."""
        return self._decoder.conceal(self._last_samples) if self._last_samples else _EMPTY

    def decode(self, packet: bytes) -> Pcm:
        """Returns the 2.5 to 120 ms of audio of one packet.

        Raises InvalidOpusPacket; the caller may then conceal the packet. An empty packet is invalid
        too, because libopus would take it for a lost one.
        """
        if not 0 < len(packet) <= MAX_PACKET_BYTES:
            raise InvalidOpusPacket(f"Opus packet of {len(packet)} bytes, limit {MAX_PACKET_BYTES}")
        try:
            pcm = self._decoder.decode(packet)
        except OpusError as exc:
            raise InvalidOpusPacket(f"not an Opus packet ({len(packet)} bytes)") from exc
        self._last_samples = len(pcm)
        return pcm
