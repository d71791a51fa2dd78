"""What a session plays to packets for a device."""

import numpy as np

from core.audio import ASR_RATE_HZ, AudioFrame, Pcm, silence
from devices.xiaozhi.ports import XiaozhiSessionPort
from media.codecs.opus import InvalidOpusPacket, OpusDecoder, OpusEncoder, OpusSettings
from media.pcm import Framer
from pipeline.playout.playout import PACED_RATE_HZ

RATE_HZ = PACED_RATE_HZ
"24 kHz, what stock firmware decodes to unless told otherwise."

PACKET_MS = 60

BITRATE_BPS = 24_000
"Speech in packets of 60 ms: 180 bytes each."

CODEC_DELAY_MS = 6.5
"What libopus looks ahead for voip (RFC 6716 section 2)."

_EMPTY = np.zeros(0, np.int16)


class DeviceAudioOutput:
    """One connection's. A packet has three pulls; what is there of it waits for the rest."""

    def __init__(self, session: XiaozhiSessionPort) -> None:
        self._session = session
        settings = OpusSettings(BITRATE_BPS, "voip", PACKET_MS)
        self._encoder = OpusEncoder(RATE_HZ, settings)
        self._held = _EMPTY
        self._owes = False
        "Some of what was pulled last is still in the encoder."
        self._said: tuple[str, int] | None = None

    def packet(self) -> bytes | None:
        """The next one; None: there is too little sound for it yet, or none."""
        missing = self._encoder.frame_samples - len(self._held)
        while missing > 0 and (frame := self._session.pull()) is not None:
            self._owes = True
            self._hold(frame.pcm)
            missing = self._encoder.frame_samples - len(self._held)
        return self._take() if missing <= 0 else None

    def rest(self) -> bytes | None:
        """The last one, filled with silence; None: nothing is left. What the encoder holds back is
        the end of the last word."""
        if self._owes:
            self._owes = False
            self._hold(silence(CODEC_DELAY_MS, RATE_HZ))
        if not len(self._held):
            return None
        missing = max(0, self._encoder.frame_samples - len(self._held))
        self._hold(np.zeros(missing, np.int16))
        return self._take()

    def new_clause(self) -> str:
        """What is said from the next packet on, if that was not told yet."""
        clause = self._session.next_clause
        if clause is None or clause[:2] == self._said:
            return ""
        self._said = clause[:2]
        return clause[2]

    def drop(self) -> None:
        """It is interrupted."""
        self._held, self._owes = _EMPTY, False

    def _hold(self, pcm: Pcm) -> None:
        self._held = np.concatenate([self._held, pcm])

    def _take(self) -> bytes:
        samples = self._encoder.frame_samples
        pcm, self._held = self._held[:samples], self._held[samples:]
        return self._encoder.encode(pcm)


# A device's packets to frames of its session: every packet has its time, whatever is in it.

MAX_DTX_BYTES = 3
"""A packet of so few holds no sound: the encoder's way to say silence (RFC 6716 section 2.1.9).
Stock firmware sends them in every pause."""


class DeviceAudioInput:
    """One connection's."""

    def __init__(self) -> None:
        self.bad = 0
        "Packets that were no Opus; silence took their place."
        self._decoder = OpusDecoder(ASR_RATE_HZ)
        self._framer = Framer(ASR_RATE_HZ)

    def hear(self, packet: bytes, packet_ms: int) -> list[AudioFrame]:
        """`packet_ms`: how long it is, where it does not say so itself."""
        return self._framer.push(self._decoded(packet, packet_ms))

    def _decoded(self, packet: bytes, packet_ms: int) -> Pcm:
        if len(packet) > MAX_DTX_BYTES:
            try:
                return self._decoder.decode(packet)
            except InvalidOpusPacket:
                self.bad += 1
        return silence(packet_ms, ASR_RATE_HZ)
