"""A device's packets to frames of its session: every packet has its time, whatever is in it."""

from core.audio import ASR_RATE_HZ, AudioFrame, Pcm, silence
from media.codecs.opus import InvalidOpusPacket, OpusDecoder
from media.framer import Framer

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
