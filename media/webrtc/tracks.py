"""Between RTP and our frames: packets in, frames out; frames in, paced packets out."""

import asyncio
from collections.abc import Callable

import numpy as np

from core.audio import ASR_RATE_HZ, AudioFrame, Pcm, ms_to_samples
from media.codecs.opus import (
    OPUS_RATE_HZ,
    InvalidOpusPacket,
    OpusDecoder,
    OpusEncoder,
    OpusSettings,
)
from media.pcm import Framer
from media.webrtc.aiortc_internals.rtp import RtpPacketSender
from media.webrtc.jitter_buffer import JitterBuffer, JitterFlow, JitterStats
from media.webrtc.pacer import PacingTimer
from media.webrtc.peer_settings import CallbackGuard

MAX_FILL_MS = 1000
"A longer gap is filled only so far: enough to end an utterance, no burst that drops live audio."

MAX_LAG_MS = 100
"A track that is later than this (the loop stood still) leaves a gap instead of a burst."

_MAX_CONCEALED_MS = 100
"What libopus guesses beyond is background noise, and costs as much as decoding."

LEAD_S = 0.005
"""So long before the other side's packet a silent one of ours is due. While a turn ends it waits,
for what comes of that before the packet or by it."""
MAX_HOLD_S = 0.01
"""What a silent packet waits for sound that is about to come. It is less than a network's jitter,
and worth 20 ms: sound that misses a packet is heard after all of its silence."""
MAX_SHIFT_S = 0.0005
"Of the ticks per packet: less than the jitter of any network."

BEAT_S = 0.01
"""Ticks of all tracks that sound come to lie on its multiples, by `MAX_SHIFT_S` a packet: a wake-up
for each track alone costs more. Silent ones have something else to look to (`LEAD_S`)."""


class TrackSource:
    """One received Opus stream: RTP packets in, frames of exactly 20 ms at `rate_hz` out.

    Audio time is continuous: lost packets are concealed with exactly their length, so `start`
    counts what the sender recorded. Delay: none; behind a lost packet, `depth` more packets, once.
    """

    def __init__(self, depth: int = 1, rate_hz: int = ASR_RATE_HZ) -> None:
        """`rate_hz`: one of OPUS_RATES_HZ."""
        self.corrupt = 0
        "Packets that were no Opus; concealed."
        self.filled_ms = 0.0
        "Concealed audio."
        self._jitter = JitterBuffer[tuple[int, bytes]](depth)
        self._decoder = OpusDecoder(rate_hz)
        self._framer = Framer(rate_hz)
        self._ticks = OPUS_RATE_HZ // rate_hz
        "Of RTP's clock per sample."
        self._max_fill = ms_to_samples(MAX_FILL_MS, rate_hz)
        self._max_concealed = ms_to_samples(_MAX_CONCEALED_MS, rate_hz)
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
        if len(pushed) == 1:
            return self._taken(*pushed[0])
        return [frame for due in pushed for frame in self._taken(*due)]

    def flush(self) -> list[AudioFrame]:
        """What is held back for reordered packets; for a sender that pauses."""
        return [frame for due in self._jitter.drain() for frame in self._taken(*due)]

    def _taken(self, timestamp: int, payload: bytes) -> list[AudioFrame]:
        if not payload:  # padding only: browsers send it to find out how fast the line is
            return []
        missing = self._missing(timestamp)
        gap = self._framer.push(self._fill(missing)) if missing else []
        audio = self._decode(payload)
        self._expected = (timestamp + self._ticks * len(audio)) & 0xFFFFFFFF
        frames = self._framer.push(audio)
        return gap + frames if gap else frames

    def _missing(self, timestamp: int) -> int:
        """Samples between the packet before and this one; a clock that went back misses none."""
        if timestamp == self._expected or self._expected is None:
            return 0
        ahead = ((timestamp - self._expected + 0x80000000) & 0xFFFFFFFF) - 0x80000000
        return min(max(ahead, 0) // self._ticks, self._max_fill)

    def _decode(self, payload: bytes) -> Pcm:
        try:
            return self._decoder.decode(payload)
        except InvalidOpusPacket:
            self.corrupt += 1
            return self._fill(self._framer.frame_samples)

    def _fill(self, samples: int) -> Pcm:
        """Exactly so many samples: Opus's concealment first, then silence."""
        self.filled_ms += 1000 * samples / self._framer.rate_hz
        filled = np.zeros(samples, np.int16)
        done = 0
        while done < min(samples, self._max_concealed):
            guess = self._decoder.conceal()[: samples - done]
            if not len(guess):
                break
            filled[done : done + len(guess)] = guess
            done += len(guess)
        return filled


class TrackSink:
    """One sent Opus stream: what `pull` returns, called once per packet's time, as paced packets.

    It gives as much at `rate_hz`, or None, which is sent as silence. A frame of another length or
    rate raises ValueError from `run`.
    """

    def __init__(
        self,
        pull: Callable[[], AudioFrame | None],
        rate_hz: int = OPUS_RATE_HZ,
        settings: OpusSettings | None = None,
        coming: Callable[[], asyncio.Event | None] = lambda: None,
        pump: PacingTimer | None = None,
    ) -> None:
        """`coming`: asked before silence goes out: what is set when sound is there, while it is
        about to come. Packets wait for it until then, none longer than `MAX_HOLD_S`."""
        self._pull = pull
        self._coming = coming
        self._rate_hz = rate_hz
        self._encoder = OpusEncoder(rate_hz, settings)
        self._silence = np.zeros(self._encoder.frame_samples, np.int16)
        self._ptime_s = self._encoder.frame_samples / rate_hz
        self._ptime = round(self._ptime_s * OPUS_RATE_HZ)
        self._guard = CallbackGuard(self._fail)
        self._pump = pump or PacingTimer()
        self._send: RtpPacketSender | None = None
        self._origin = 0.0
        self._tick = 0
        self._is_silent = True
        self._has_held = False
        "A packet has waited in vain for the sound that is coming."
        self._news = asyncio.Event()
        "Something that the pump's callback cannot do: wait, or fail."
        self._awaited: asyncio.Event | None = None
        self._failure: Exception | None = None
        self.skipped_ticks = 0
        "Ticks that the loop was too late for; they are a gap in the timestamps."

    async def run(self, send: RtpPacketSender) -> None:
        """Send packets from now on, each when it is due by the loop's clock, until cancelled."""
        loop = asyncio.get_running_loop()
        self._send, self._origin = send, loop.time() - self._tick * self._ptime_s
        self._pump.at(loop.time(), self._due)
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                if self._failure is not None:
                    raise self._failure
                await self._until_sound()
                self._go()
        finally:
            self._send = None
            self._pump.forget(self._due)

    @property
    def awaits_sound(self) -> bool:
        """It is about to come, as far as is known: no packet has waited for it in vain."""
        return self._is_silent and not self._has_held and self._coming() is not None

    def follow(self) -> None:
        """The other side's packet came just now. In silence, ticks move a little, until they come
        `LEAD_S` before."""
        if self._is_silent and self._send is not None:
            self._move(asyncio.get_running_loop().time() - LEAD_S, self._ptime_s)

    def _move(self, wanted: float, every_s: float) -> None:
        """Ticks, towards where one of them would be, or a multiple of `every_s` from there."""
        ahead = (self._origin - wanted) % every_s
        if ahead > every_s / 2:
            ahead -= every_s
        self._origin -= min(MAX_SHIFT_S, max(-MAX_SHIFT_S, ahead))

    def _due(self) -> None:
        """A packet's time has come."""
        with self._guard:  # it ends `run`, not the pump of all others
            self._leave_gap(asyncio.get_running_loop().time())
            self._awaited = self._coming() if self._is_silent else None
            if self._awaited is None:
                self._has_held = False
                self._go()
            else:
                self._news.set()

    def _leave_gap(self, now: float) -> None:
        late_s = now - self._origin - self._tick * self._ptime_s
        if late_s > MAX_LAG_MS / 1000:
            late = int(late_s / self._ptime_s)
            self.skipped_ticks += late
            self._tick += late

    async def _until_sound(self) -> None:
        """A moment: the media clock has no place for it within a packet."""
        assert self._awaited is not None
        try:
            async with asyncio.timeout(MAX_HOLD_S):
                await self._awaited.wait()
        except TimeoutError:
            self._has_held = True

    def _go(self) -> None:
        assert self._send is not None
        frame = self._pull()
        self._is_silent = frame is None
        pcm = self._silence if frame is None else self._checked(frame)
        self._send(self._tick * self._ptime, self._encoder.encode(pcm))
        self._tick += 1
        if frame is not None:
            self._move(0, BEAT_S)
        self._pump.at(self._origin + self._tick * self._ptime_s, self._due)

    def _fail(self, failure: Exception) -> None:
        self._failure = failure
        self._news.set()

    def _checked(self, frame: AudioFrame) -> Pcm:
        """Its sound, if this track can play it. Raises ValueError."""
        samples = len(self._silence)
        if frame.rate_hz != self._rate_hz or len(frame.pcm) != samples:
            raise ValueError(
                f"pull gave {len(frame.pcm)} samples at {frame.rate_hz} Hz; "
                f"the track plays {samples} at {self._rate_hz} Hz"
            )
        return frame.pcm
