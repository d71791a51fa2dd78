"""Audio of a device: the session's playout as Opus packets, and the device's packets as frames."""

import numpy as np

from core.audio import ASR_RATE_HZ, AudioFrame, Pcm, silence
from devices.fleet.sound_level import SoundLevelMeter
from media.codecs.opus import InvalidOpusPacket, OpusDecoder, OpusEncoder, OpusSettings
from media.pcm import Framer
from pipeline.playout.playout import PACED_RATE_HZ
from pipeline.session.session import Session

RATE_HZ = PACED_RATE_HZ
"24 kHz, to which stock firmware decodes by default."

PACKET_MS = 60
"Audio per packet."

BITRATE_BPS = 24_000
"Bit rate for speech: 180 bytes per packet of 60 ms."

CODEC_DELAY_MS = 6.5
"Look-ahead of libopus for voip (RFC 6716 section 2)."

_EMPTY = np.zeros(0, np.int16)


class DeviceAudioOutput:
    """Encodes the playout of one connection. A packet needs three frames; fewer wait for the next
    ones."""

    def __init__(self, session: Session) -> None:
        self._session = session
        settings = OpusSettings(BITRATE_BPS, "voip", PACKET_MS)
        self._encoder = OpusEncoder(RATE_HZ, settings)
        self._buffered = _EMPTY
        self._has_encoder_tail = False
        "The encoder still holds the end of the last frame."
        self._spoken_clause: tuple[str, int] | None = None
        "Response id and number of the clause that began last."

    def packet(self) -> bytes | None:
        """Returns the next packet; None: there is not enough audio yet, or none."""
        missing = self._encoder.frame_samples - len(self._buffered)
        while missing > 0 and (frame := self._session.pull()) is not None:
            self._has_encoder_tail = True
            self._buffer(frame.pcm)
            missing = self._encoder.frame_samples - len(self._buffered)
        return self._take() if missing <= 0 else None

    def last_packet(self) -> bytes | None:
        """Returns the last packet, filled with silence; None: nothing is left.

        The encoder holds back the end of the last word, which this flushes.
        """
        if self._has_encoder_tail:
            self._has_encoder_tail = False
            self._buffer(silence(CODEC_DELAY_MS, RATE_HZ))
        if not len(self._buffered):
            return None
        missing = max(0, self._encoder.frame_samples - len(self._buffered))
        self._buffer(np.zeros(missing, np.int16))
        return self._take()

    def new_clause(self) -> str:
        """Returns the text of the clause that the next packet begins; empty: no new clause."""
        clause = self._session.next_clause
        if clause is None or clause[:2] == self._spoken_clause:
            return ""
        self._spoken_clause = clause[:2]
        return clause[2]

    def drop(self) -> None:
        """Drops the audio that waits, after an interruption."""
        self._buffered, self._has_encoder_tail = _EMPTY, False

    def _buffer(self, pcm: Pcm) -> None:
        self._buffered = np.concatenate([self._buffered, pcm])

    def _take(self) -> bytes:
        samples = self._encoder.frame_samples
        pcm, self._buffered = self._buffered[:samples], self._buffered[samples:]
        return self._encoder.encode(pcm)


# The way in: each packet takes its full time, whether it can be decoded or not.

MAX_DTX_BYTES = 3
"""A packet of at most this many bytes holds no sound: it marks silence (RFC 6716 section 2.1.9).
Stock firmware sends such packets in every pause."""


class DeviceAudioInput:
    """Decodes the packets of one connection."""

    def __init__(self) -> None:
        self.invalid_packets = 0
        "Number of packets that were not valid Opus; silence took their place."
        self._decoder = OpusDecoder(ASR_RATE_HZ)
        self._framer = Framer(ASR_RATE_HZ)

    def decode(self, packet: bytes, packet_ms: int) -> list[AudioFrame]:
        """Decodes a packet and returns the frames that are complete.

        packet_ms: length of the audio in a packet that has no valid Opus.
        """
        return self._framer.push(self._decoded(packet, packet_ms))

    def _decoded(self, packet: bytes, packet_ms: int) -> Pcm:
        if len(packet) > MAX_DTX_BYTES:
            try:
                return self._decoder.decode(packet)
            except InvalidOpusPacket:
                self.invalid_packets += 1
        return silence(packet_ms, ASR_RATE_HZ)


WAKE_AUDIO_MS = 3000
"Sound of a wake word that is measured. Stock firmware sends the last 2 s; more is a flood."


class WakeWordAudio:
    """Measures the sound of a wake word, which a board may send before it listens."""

    def __init__(self) -> None:
        self._input = DeviceAudioInput()
        self._meter = SoundLevelMeter(WAKE_AUDIO_MS)

    def push(self, packet: bytes, packet_ms: int) -> None:
        """Takes a packet; see `DeviceAudioInput.decode`."""
        if not self._meter.is_full:
            for frame in self._input.decode(packet, packet_ms):
                self._meter.push(frame.pcm)

    def take_level(self) -> float | None:
        """Returns the level in dBFS, and begins anew; None: the board sent no sound."""
        level_dbfs, self._meter = self._meter.level_dbfs, SoundLevelMeter(WAKE_AUDIO_MS)
        return level_dbfs
