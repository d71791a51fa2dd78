"""Between RTP and our frames: packets in, frames out; frames in, paced packets out."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction

import numpy as np
from aiortc import MediaStreamTrack, RTCRtpReceiver
from aiortc.mediastreams import MediaStreamError
from aiortc.rtp import RtpPacket
from av import Packet
from av.stream import Stream

from core.audio import ASR_RATE_HZ, PTIME_MS, AudioFrame, Pcm, ms_to_samples
from core.errors import EarshotError
from media.framer import Framer
from media.jitter import JitterBuffer, JitterFlow, JitterStats
from media.opus import OPUS_RATE_HZ, BadAudioPacket, OpusDecoder, OpusEncoder, OpusSettings
from media.resample import Resampler

MAX_FILL_MS = 1000
"A longer gap is filled only so far: enough to end an utterance, no burst that drops live audio."

MAX_LAG_MS = 100
"A track that is later than this (the loop stood still) leaves a gap instead of a burst."

_JITTER_BUFFER = "_RTCRtpReceiver__jitter_buffer"
"""Private in aiortc 1.16, whose own buffer holds audio for 80 ms, and for 280 ms after one loss."""

_MAX_CONCEALED_SAMPLES = ms_to_samples(100, OPUS_RATE_HZ)
"What libopus guesses beyond is background noise, and costs as much as decoding."

REACTION_S = 0.003
"From a packet to knowing what it ends: voice activity. An answer that follows is waited for."
MAX_HOLD_S = 0.01
"""What a silent packet waits for sound that is about to come. It is less than a network's jitter,
and worth 20 ms: sound that misses a packet is heard after all of its silence."""
MAX_SHIFT_S = 0.0005
"Of the ticks per packet: less than the jitter of any network."

_PACKET_SAMPLES = ms_to_samples(PTIME_MS, OPUS_RATE_HZ)


class TrackSource:
    """One received Opus stream: RTP packets in, frames of exactly 20 ms at `rate_hz` out.

    Audio time is continuous: lost packets are concealed with exactly their length, so `start`
    counts what the sender recorded. Delay: 1 ms of resampling; behind a lost packet, `depth` more
    packets, once.
    """

    def __init__(self, depth: int = 1, rate_hz: int = ASR_RATE_HZ) -> None:
        self.corrupt = 0
        "Packets that were no Opus; concealed."
        self.filled_samples = 0
        "Concealed audio, at 48 kHz."
        self._jitter = JitterBuffer[tuple[int, bytes]](depth)
        self._decoder = OpusDecoder()
        self._resampler = Resampler(OPUS_RATE_HZ, rate_hz, live=True)
        self._framer = Framer(rate_hz)
        self._expected: int | None = None

    @property
    def stats(self) -> JitterStats:
        return self._jitter.stats

    @property
    def flow(self) -> JitterFlow:
        return self._jitter.flow

    def push(self, sequence_number: int, timestamp: int, payload: bytes) -> list[AudioFrame]:
        """Take one packet; return the frames that became complete."""
        pushed = self._jitter.push(sequence_number, (timestamp, payload))
        return [frame for due in pushed for frame in self._taken(*due)]

    def flush(self) -> list[AudioFrame]:
        """What is held back for reordered packets; for a sender that pauses."""
        return [frame for due in self._jitter.drain() for frame in self._taken(*due)]

    def _taken(self, timestamp: int, payload: bytes) -> list[AudioFrame]:
        gap = self._fill(_gap(timestamp, self._expected))
        audio = self._decode(payload)
        self._expected = (timestamp + len(audio)) & 0xFFFFFFFF
        return self._framer.push(self._resampler.push(np.concatenate([gap, audio])))

    def _decode(self, payload: bytes) -> Pcm:
        try:
            return self._decoder.decode(payload)
        except BadAudioPacket:
            self.corrupt += 1
            return self._fill(_PACKET_SAMPLES)

    def _fill(self, samples: int) -> Pcm:
        """Exactly so many samples: Opus's concealment first, then silence."""
        self.filled_samples += samples
        filled = np.zeros(samples, np.int16)
        done = 0
        while done < min(samples, _MAX_CONCEALED_SAMPLES):
            guess = self._decoder.conceal()[: samples - done]
            if not len(guess):
                break
            filled[done : done + len(guess)] = guess
            done += len(guess)
        return filled


def _gap(timestamp: int, expected: int | None) -> int:
    """Samples missing between two packets; a clock that went back misses none."""
    if expected is None:
        return 0
    ahead = ((timestamp - expected + 0x80000000) & 0xFFFFFFFF) - 0x80000000
    return min(max(ahead, 0), ms_to_samples(MAX_FILL_MS, OPUS_RATE_HZ))


class _PacketTap:
    """Stands where aiortc's jitter buffer stood. It keeps nothing, so aiortc decodes nothing."""

    def __init__(self, sink: Callable[[int, int, bytes], None]) -> None:
        self._sink = sink

    def add(self, packet: RtpPacket) -> tuple[bool, None]:
        self._sink(packet.sequence_number, packet.timestamp, packet.payload)
        return False, None


def tap(receiver: RTCRtpReceiver, sink: Callable[[int, int, bytes], None]) -> None:
    """Give `sink` each RTP packet (sequence number, timestamp, payload) as it arrives.

    Raises EarshotError if this aiortc keeps its jitter buffer elsewhere.
    """
    if not hasattr(receiver, _JITTER_BUFFER):
        raise EarshotError(f"this aiortc has no RTCRtpReceiver.{_JITTER_BUFFER}; 1.16 is needed")
    setattr(receiver, _JITTER_BUFFER, _PacketTap(sink))


class SourceTrack(MediaStreamTrack):
    """Sends what `pull` returns: called once per 20 ms, it gives 20 ms at `rate_hz`, or None.

    None is sent as silence. A frame of another length or rate raises ValueError. The track hands
    aiortc encoded packets: for frames, aiortc scans every sample in pure Python (67-137 us),
    encodes stereo, and changes threads twice.
    """

    kind = "audio"

    def __init__(
        self,
        pull: Callable[[], AudioFrame | None],
        rate_hz: int = OPUS_RATE_HZ,
        settings: OpusSettings | None = None,
        coming: Callable[[], asyncio.Event | None] = lambda: None,
    ) -> None:
        """`coming`: asked before silence goes out: what is set when sound is there, while it is
        about to come. Packets wait for it until then, none longer than `MAX_HOLD_S`."""
        super().__init__()
        self._pull = pull
        self._coming = coming
        self._rate_hz = rate_hz
        self._encoder = OpusEncoder(rate_hz, settings)
        self._silence = np.zeros(self._encoder.frame_samples, np.int16)
        self._ptime_s = self._encoder.frame_samples / rate_hz
        self._origin: float | None = None
        self._tick = 0
        self._is_silent = True
        self._has_held = False
        "A packet waits, or has waited, for the sound that is coming."
        self.skipped_ticks = 0
        "Ticks that the loop was too late for; they are a gap in the timestamps."

    async def recv(self) -> "Packet[Stream]":
        """The next packet, when it is due by the loop's clock."""
        if self.readyState != "live":
            raise MediaStreamError
        await self._until_due()
        await self._until_sound()
        packet = Packet(self._encoder.encode(self._next_pcm()))
        packet.pts = self._tick * round(self._ptime_s * OPUS_RATE_HZ)
        packet.time_base = Fraction(1, OPUS_RATE_HZ)
        self._tick += 1
        return packet

    @property
    def awaits_sound(self) -> bool:
        """It is about to come, as far as is known: no packet has waited for it in vain."""
        return self._is_silent and not self._has_held and self._coming() is not None

    def follow(self) -> None:
        """The other side's packet came just now. In silence, ticks move a little so that they come
        right after: what a packet brings about goes out with the next tick, not 20 ms later."""
        if self._origin is None or not self._is_silent:
            return
        wanted = asyncio.get_running_loop().time() + REACTION_S
        ahead = (self._origin - wanted) % self._ptime_s
        if ahead > self._ptime_s / 2:
            ahead -= self._ptime_s
        self._origin -= min(MAX_SHIFT_S, max(-MAX_SHIFT_S, ahead))

    async def _until_due(self) -> None:
        loop = asyncio.get_running_loop()
        if self._origin is None:
            self._origin = loop.time()
        wait_s = self._origin + self._tick * self._ptime_s - loop.time()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        elif -wait_s > MAX_LAG_MS / 1000:
            late = int(-wait_s / self._ptime_s)
            self.skipped_ticks += late
            self._tick += late

    async def _until_sound(self) -> None:
        """A moment, if it is about to come: the media clock has no place for it within a packet."""
        coming = self._coming() if self._is_silent else None
        if coming is None:
            self._has_held = False
            return
        self._has_held = True
        with suppress(TimeoutError):
            async with asyncio.timeout(MAX_HOLD_S):
                await coming.wait()

    def _next_pcm(self) -> Pcm:
        frame = self._pull()
        self._is_silent = frame is None
        return self._silence if frame is None else self.checked(frame).pcm

    def checked(self, frame: AudioFrame) -> AudioFrame:
        """The frame, if this track can play it. Raises ValueError."""
        samples = self._encoder.frame_samples
        if (frame.rate_hz, len(frame.pcm)) != (self._rate_hz, samples):
            raise ValueError(
                f"pull gave {len(frame.pcm)} samples at {frame.rate_hz} Hz; "
                f"the track plays {samples} at {self._rate_hz} Hz"
            )
        return frame
