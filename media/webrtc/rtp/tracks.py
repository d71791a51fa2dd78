"""Converts between RTP packets and frames: packets in, frames out; frames in, paced packets out."""

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
from media.webrtc.peer_settings import CallbackGuard
from media.webrtc.rtp.call_path import RtpPacketSender
from media.webrtc.rtp.jitter_buffer import JitterBuffer, JitterFlow, JitterStats
from media.webrtc.rtp.pacer import PacingTimer

MAX_FILL_MS = 1000
"""Longest part of a gap that is filled: enough to end an utterance, but no burst that would make us
drop live audio."""

MAX_LAG_MS = 100
"""Lag after which a track leaves a gap instead of sending a burst, because the event loop was
blocked."""

_MAX_CONCEALED_MS = 100
"""Longest concealment by libopus. Beyond it the result is background noise, and costs as much as
decoding."""

LEAD_S = 0.005
"""Silent packets are scheduled this long before the peer's next packet arrives. Together with
`MAX_HOLD_S`, a response that is triggered by that packet can still replace them."""
MAX_HOLD_S = 0.01
"""Longest time that a silent packet waits for audio that is about to come. It is less than a
network's jitter, and saves 20 ms: audio that misses a packet is played after all of its silence."""
MAX_SHIFT_S = 0.0005
"Largest shift of the ticks per packet: less than the jitter of any network."

TICK_GRID_S = 0.01
"""Grid for the ticks of all tracks with sound. Each packet moves them towards a multiple of this,
by at most `MAX_SHIFT_S`, because a separate wake-up for each track costs more. Silent tracks follow
`LEAD_S` instead."""


class TrackSource:
    """One received Opus stream: RTP packets in, frames of exactly 20 ms at `rate_hz` out.

    Audio time is continuous: lost packets are concealed with exactly their length, so `start`
    counts the samples that the sender recorded. There is no delay, except once after a lost packet,
    until `depth` more packets have arrived.

    Example:
        source = TrackSource(depth=1, rate_hz=16_000)
        for frame in source.push(sequence_number, timestamp, payload):
            ...                                 # 320 samples each
    """

    def __init__(self, depth: int = 1, rate_hz: int = ASR_RATE_HZ) -> None:
        """Creates the source. `depth`: packets that are held back after a gap. `rate_hz`: one of
        OPUS_RATES_HZ."""
        self.corrupt = 0
        "Number of packets that were not Opus; they are concealed."
        self.filled_ms = 0.0
        "Length of the concealed audio so far."
        self._jitter = JitterBuffer[tuple[int, bytes]](depth)
        self._decoder = OpusDecoder(rate_hz)
        self._framer = Framer(rate_hz)
        self._ticks = OPUS_RATE_HZ // rate_hz
        "Ticks of RTP's clock per sample."
        self._max_fill = ms_to_samples(MAX_FILL_MS, rate_hz)
        self._max_concealed = ms_to_samples(_MAX_CONCEALED_MS, rate_hz)
        self._expected: int | None = None
        "Timestamp that the next packet has if none is lost; None before the first packet."

    @property
    def stats(self) -> JitterStats:
        """Counts of lost, late and reordered packets."""
        return self._jitter.stats

    @property
    def flow(self) -> JitterFlow:
        """Totals of the jitter buffer."""
        return self._jitter.flow

    def push(self, sequence_number: int, timestamp: int, payload: bytes) -> list[AudioFrame]:
        """Takes one packet, and returns the frames that are complete. `timestamp`: RTP's, at
        48 kHz."""
        pushed = self._jitter.push(sequence_number, (timestamp, payload))
        if len(pushed) == 1:
            return self._frames_of(*pushed[0])
        return [frame for due in pushed for frame in self._frames_of(*due)]

    def flush(self) -> list[AudioFrame]:
        """Returns the frames that were held back for reordered packets. For a sender that
        pauses."""
        return [frame for due in self._jitter.drain() for frame in self._frames_of(*due)]

    def _frames_of(self, timestamp: int, payload: bytes) -> list[AudioFrame]:
        if not payload:  # padding only: browsers send it to measure the bandwidth
            return []
        missing = self._gap_samples(timestamp)
        gap = self._framer.push(self._fill(missing)) if missing else []
        audio = self._decode(payload)
        self._expected = (timestamp + self._ticks * len(audio)) & 0xFFFFFFFF
        frames = self._framer.push(audio)
        return gap + frames if gap else frames

    def _gap_samples(self, timestamp: int) -> int:
        """Returns the number of samples between the last packet and this one; 0 if the clock went
        back."""
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
        """Returns that number of samples: Opus's concealment first, then silence."""
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
    """One sent Opus stream. It calls `pull` once per packet's time, and sends the result as paced
    packets.

    `pull` returns one packet's audio at `rate_hz`, or None, which is sent as silence. A frame of
    another length or rate raises ValueError from `run`.
    """

    def __init__(
        self,
        pull: Callable[[], AudioFrame | None],
        rate_hz: int = OPUS_RATE_HZ,
        settings: OpusSettings | None = None,
        next_sound_event: Callable[[], asyncio.Event | None] = lambda: None,
        pacer: PacingTimer | None = None,
    ) -> None:
        """Creates the sink; `run` starts it.

        `next_sound_event`: called before silence is sent. If audio is about to come, it returns an
        event that is set once the audio is there; the packet then waits for it, at most
        `MAX_HOLD_S`. `pacer`: timer that may be shared with other sinks.
        """
        self._pull = pull
        self._next_sound_event = next_sound_event
        self._rate_hz = rate_hz
        self._encoder = OpusEncoder(rate_hz, settings)
        self._silence = np.zeros(self._encoder.frame_samples, np.int16)
        self._ptime_s = self._encoder.frame_samples / rate_hz
        self._ptime = round(self._ptime_s * OPUS_RATE_HZ)
        self._guard = CallbackGuard(self._fail)
        self._pacer = pacer or PacingTimer()
        self._send: RtpPacketSender | None = None
        self._origin = 0.0
        """Event loop time of the first packet, in seconds. To shift all later packets, it is
        changed."""
        self._tick = 0
        "Number of the next packet."
        self._is_silent = True
        "True if the last packet was silence."
        self._has_waited = False
        "True if a packet has waited in vain for the audio that is about to come."
        self._wakeup = asyncio.Event()
        "Set when `run` must do what the timer's callback cannot: wait, or raise."
        self._awaited_sound: asyncio.Event | None = None
        "Event for which the present packet waits."
        self._failure: Exception | None = None
        self.skipped_ticks = 0
        """Number of packets that were left out because the loop was late; they are a gap in the
        timestamps."""

    async def run(self, send: RtpPacketSender) -> None:
        """Sends packets from now on, each at its time by the loop's clock, until it is
        cancelled."""
        loop = asyncio.get_running_loop()
        self._send, self._origin = send, loop.time() - self._tick * self._ptime_s
        self._pacer.call_at(loop.time(), self._on_tick)
        try:
            while True:
                await self._wakeup.wait()
                self._wakeup.clear()
                if self._failure is not None:
                    raise self._failure
                await self._wait_for_sound()
                self._send_packet()
        finally:
            self._send = None
            self._pacer.forget(self._on_tick)

    @property
    def awaits_sound(self) -> bool:
        """True if audio is about to come, and no packet has waited for it in vain."""
        return self._is_silent and not self._has_waited and self._next_sound_event() is not None

    def note_arrival(self) -> None:
        """Notes that a packet of the other side has just arrived. While we are silent, this moves
        our ticks a little, until they come `LEAD_S` before such packets."""
        if self._is_silent and self._send is not None:
            self._shift_ticks(asyncio.get_running_loop().time() - LEAD_S, self._ptime_s)

    def _shift_ticks(self, wanted: float, every_s: float) -> None:
        """Moves the ticks towards `wanted`, or a multiple of `every_s` from there, by at most
        MAX_SHIFT_S."""
        ahead = (self._origin - wanted) % every_s
        if ahead > every_s / 2:
            ahead -= every_s
        self._origin -= min(MAX_SHIFT_S, max(-MAX_SHIFT_S, ahead))

    def _on_tick(self) -> None:
        """Handles the time of the next packet; called by the timer."""
        with self._guard:  # an error ends this sink's `run`, not the timer that others share
            self._leave_gap(asyncio.get_running_loop().time())
            # Only silence is held back. Within sound a late packet would be audible.
            self._awaited_sound = self._next_sound_event() if self._is_silent else None
            if self._awaited_sound is None:
                self._has_waited = False
                self._send_packet()
            else:
                self._wakeup.set()

    def _leave_gap(self, now: float) -> None:
        late_s = now - self._origin - self._tick * self._ptime_s
        if late_s > MAX_LAG_MS / 1000:
            late = int(late_s / self._ptime_s)
            self.skipped_ticks += late
            self._tick += late

    async def _wait_for_sound(self) -> None:
        """Waits a moment for the audio, without changing timestamps: the media clock has no time
        between packets."""
        assert self._awaited_sound is not None
        try:
            async with asyncio.timeout(MAX_HOLD_S):
                await self._awaited_sound.wait()
        except TimeoutError:
            self._has_waited = True

    def _send_packet(self) -> None:
        """Sends one packet and schedules the next."""
        assert self._send is not None
        frame = self._pull()
        self._is_silent = frame is None
        pcm = self._silence if frame is None else self._checked(frame)
        self._send(self._tick * self._ptime, self._encoder.encode(pcm))
        self._tick += 1
        if frame is not None:
            # towards the grid on which the packets of all calls with sound are sent
            self._shift_ticks(0, TICK_GRID_S)
        self._pacer.call_at(self._origin + self._tick * self._ptime_s, self._on_tick)

    def _fail(self, failure: Exception) -> None:
        self._failure = failure
        self._wakeup.set()

    def _checked(self, frame: AudioFrame) -> Pcm:
        """Returns the frame's samples. Raises ValueError if this track cannot play them."""
        samples = len(self._silence)
        if frame.rate_hz != self._rate_hz or len(frame.pcm) != samples:
            raise ValueError(
                f"pull gave {len(frame.pcm)} samples at {frame.rate_hz} Hz; "
                f"the track plays {samples} at {self._rate_hz} Hz"
            )
        return frame.pcm
