"""Playout: sends an answer's sound to the speaker and counts how much of it was heard. Each answer
has one writer.

Server-paced: a track pulls one frame every 20 ms. Client-paced: sound is handed over as it comes,
in frames of any length, and `ClientPlayoutClock` estimates when they are played. A new answer or
`clear` makes the old writer dead: what it still writes is dropped.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from core.audio import PTIME_MS, AudioFrame, Pcm, ms_to_samples, samples_to_ms
from core.ports import Clock, Metrics
from media.pcm import Framer
from media.resample import Resampler
from pipeline.shared.settings import PlayoutPacing

PACED_RATE_HZ = 24_000
"Opus takes this rate as it is, and no voice has more. At 48 kHz each voice would be resampled."
CLIENT_RATE_HZ = 24_000
"Rate that OpenAI Realtime clients expect."
MAX_QUEUED_MS = 4000
"Most sound that synthesis runs ahead. An interruption throws it away."

MAX_PIECE_SAMPLES = ms_to_samples(500, CLIENT_RATE_HZ)
"""Largest frame for a client-paced session. It is longer than the pieces that voices deliver at
once, so that no short rest is left after resampling."""

REFILL_MS = 200
"Sound that is played before a waiting voice continues: waking it for each frame costs more."


class ClientPlayoutClock:
    """Playout clock of one session whose client paces its own playout: it plays what it is sent at
    once, in order and without a break. The network delay to the client is not included."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.ends_at = 0.0
        "Monotonic seconds at which all that was sent has been played."

    def take(self, duration_s: float) -> float:
        """Notes that `duration_s` of sound is sent. Returns the monotonic seconds at which it
        begins to play."""
        begin = max(self._clock.now(), self.ends_at)
        self.ends_at = begin + duration_s
        return begin

    def drop_unplayed(self) -> None:
        """Notes that the client drops what it has not played yet."""
        self.ends_at = min(self.ends_at, self._clock.now())


class PlayoutObserver(Protocol):
    """Receives what happens to an answer's sound. Called from the task that writes or pulls, never
    re-entered."""

    def playout_started(self, writer: "PlayoutWriter") -> None:
        """Called with the first frame of an answer."""
        ...

    def playout_stopped(self, writer: "PlayoutWriter") -> None:
        """Called when all sound of an answer was taken or handed over."""
        ...

    def playout_cleared(self, writer: "PlayoutWriter") -> None:
        """Called when the sound of an answer was cut off."""
        ...


class SpeakerBuffer(Protocol):
    """Buffer between a server-paced session and the speaker of its client, which the door fills
    ahead of time."""

    def drop(self) -> float:
        """Drops the sound that was pulled and not played. Returns its length in ms."""
        ...


class PlayoutWriter:
    """Takes the sound of one answer, and counts how much of it was played."""

    def __init__(self, playout: "Playout", response_id: str, source_rate_hz: int) -> None:
        self.response_id = response_id
        self.is_dead = False
        self.is_finished = False
        self.written = 0
        """Samples written, at the playout's rate. Server-paced: including the silence at the very
        end."""
        self.played = 0
        "Samples that the speaker took (server-paced) or that were handed over (client-paced)."
        self.has_started = False
        self.ends_at = 0.0
        """Monotonic seconds. Server-paced: when the latest frame was taken. Client-paced: when all
        that was handed over has been played."""
        self._runs: list[tuple[float, float]] = []
        """Points at which sound began or continued after a gap: ms of this answer, monotonic
        seconds."""
        self._playout = playout
        self._resampler = Resampler(source_rate_hz, playout.rate_hz)
        self._framer = Framer(playout.rate_hz)

    @property
    def heard_ms(self) -> float:
        """Sound of the answer that was played (server-paced) or handed over (client-paced), in
        ms."""
        return samples_to_ms(self.played, self._playout.rate_hz)

    @property
    def total_ms(self) -> float:
        """Sound of the answer that was written so far, in ms."""
        return samples_to_ms(self.written, self._playout.rate_hz)

    def played_at(self, heard_ms: float) -> float:
        """Returns the monotonic seconds at which a client that paces itself had played `heard_ms`
        of it."""
        run_ms, at = next(run for run in reversed(self._runs) if run[0] <= heard_ms)
        return min(at + (heard_ms - run_ms) / 1000, self.ends_at)

    def count_played(self, samples: int, begin: float, end: float, *, has_gap: bool) -> None:
        """Notes that the next samples play from `begin` to `end` (monotonic seconds). For
        `Playout`."""
        if has_gap or not self._runs:
            self._runs.append((self.heard_ms, begin))
        self.played += samples
        self.ends_at = end

    def count_unheard(self, unheard_ms: float) -> None:
        """Takes back the end of what was played. For `Playout`."""
        self.played = max(0, self.played - ms_to_samples(unheard_ms, self._playout.rate_hz))

    async def write(self, pcm: Pcm) -> None:
        """Queues sound, at the voice's rate. Waits while `MAX_QUEUED_MS` are queued."""
        for frame in self._frames(self._resampler.push(pcm)):
            await self._playout.put(self, frame)

    async def finish(self) -> None:
        """Ends the answer's sound. For a track, the last frame is filled with silence."""
        for frame in self._frames(self._resampler.flush()):
            await self._playout.put(self, frame)
        if (rest := self._framer.flush()) is not None:
            await self._playout.put(self, rest)
        self.is_finished = True
        self._playout.finished(self)

    def _frames(self, pcm: Pcm) -> Iterable[AudioFrame]:
        """Cuts sound into frames: of 20 ms for a track, else of up to MAX_PIECE_SAMPLES.

        Only a track needs frames of exactly 20 ms. Cutting and joining them costs more than all
        other work on an answer's sound on its way to a client.
        """
        if self._playout.paced_by == "server":
            return self._framer.push(pcm)
        size = MAX_PIECE_SAMPLES
        pieces = (pcm[at : at + size] for at in range(0, len(pcm), size))
        return (AudioFrame(piece, self._playout.rate_hz, self.written) for piece in pieces)


class Playout:
    """Sound output of one session: one answer at a time, with pause, resume and clear.

    Example:

        writer = playout.open(response_id, source_rate_hz=22_050)
        await writer.write(pcm)  # as often as the voice has sound
        await writer.finish()
        await playout.drained()
    """

    def __init__(
        self,
        paced_by: PlayoutPacing,
        listener: PlayoutObserver,
        clock: Clock,
        client: ClientPlayoutClock,
        metrics: Metrics,
        deliver: Callable[[str, Pcm], None] | None = None,
        client_has_room: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """For a client-paced session, `deliver(response_id, pcm)` sends a frame, and
        `client_has_room` waits while the client is behind."""
        self.paced_by = paced_by
        self.rate_hz = PACED_RATE_HZ if paced_by == "server" else CLIENT_RATE_HZ
        self._listener, self._clock, self._metrics = listener, clock, metrics
        self._client = client
        self._deliver, self._client_has_room = deliver, client_has_room
        self._frames: deque[AudioFrame] = deque()
        self._writer: PlayoutWriter | None = None
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._sound_queued = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._is_flowing = asyncio.Event()
        "Set while playout is not paused."
        self._is_flowing.set()
        self._pause_began_at: float | None = None
        "Monotonic seconds at which a pause was asked for, until the speaker is without sound."
        self.speaker: SpeakerBuffer | None = None
        "None: what is pulled is heard at once."
        self._ran_dry = False
        "True if a server-paced speaker got no frame in the middle of an answer."

    @property
    def writer(self) -> PlayoutWriter | None:
        """Writer of the answer that is being spoken; None when none is."""
        return self._writer

    @property
    def is_audible(self) -> bool:
        """True if the sound of an answer has started and not ended."""
        return self._writer is not None and self._writer.has_started

    @property
    def is_paused(self) -> bool:
        """True while the sound of an answer has paused."""
        return self.is_audible and not self._is_flowing.is_set()

    @property
    def first_sound_event(self) -> asyncio.Event | None:
        """Event that is set when an answer has its first sound; None while one is audible or
        paused."""
        is_silent = not self.is_audible and self._is_flowing.is_set()
        return self._sound_queued if is_silent else None

    def open(self, response_id: str, source_rate_hz: int) -> PlayoutWriter:
        """Begins an answer. What is left of the one before is cleared."""
        self.clear()
        self._writer = PlayoutWriter(self, response_id, source_rate_hz)
        self._is_idle.clear()
        return self._writer

    async def drained(self) -> None:
        """Waits until nothing is left to be played."""
        await self._is_idle.wait()

    def clear(self) -> PlayoutWriter | None:
        """Stops at once. Returns the writer that was cut off, which knows how much was played; None
        if there was none."""
        writer = self._writer
        self._frames.clear()
        self._sound_queued.clear()
        # Wakes a writer that waits for room, so that it sees that it is dead.
        self._has_room.set()
        self._paused()
        if writer is None:
            return None
        writer.is_dead = True
        if self.speaker is not None and writer.has_started:
            writer.count_unheard(self.speaker.drop())
        self._end()
        if writer.has_started:
            self._listener.playout_cleared(writer)
        return writer

    def pause(self) -> None:
        """Stops the sound from the next frame on; what is queued is kept."""
        if self._is_flowing.is_set() and self.is_audible and self._frames:
            self._pause_began_at = self._clock.now()
        self._is_flowing.clear()

    def resume(self) -> None:
        """Continues where it paused."""
        self._pause_began_at = None
        self._is_flowing.set()

    def pull(self) -> AudioFrame | None:
        """Returns the next 20 ms for the speaker; None when there is nothing to play."""
        writer = self._writer
        if not self._is_flowing.is_set():
            self._paused()
            return None
        if writer is None:
            return None
        if not self._frames:
            self._ran_dry = writer.has_started
            return None
        frame = self._frames.popleft()
        if len(self._frames) * PTIME_MS <= MAX_QUEUED_MS - REFILL_MS:
            self._has_room.set()
        if not self._frames:
            self._sound_queued.clear()
        self._played(writer, frame)
        if not self._frames and writer.is_finished:
            self._stop(writer)
        return frame

    async def put(self, writer: PlayoutWriter, frame: AudioFrame) -> None:
        """Takes one frame from a writer. Waits while there is no room or, for a client, while
        paused."""
        if self.paced_by == "client":
            while not (writer.is_dead or self._is_flowing.is_set()):
                await self._is_flowing.wait()
            if not writer.is_dead and self._client_has_room is not None:
                await self._client_has_room()
            if not writer.is_dead and self._deliver is not None:
                writer.written += len(frame.pcm)
                self._played(writer, frame)
                self._deliver(writer.response_id, frame.pcm)
            return
        while not writer.is_dead and len(self._frames) * PTIME_MS >= MAX_QUEUED_MS:
            self._has_room.clear()
            await self._has_room.wait()
        if not writer.is_dead:
            writer.written += len(frame.pcm)
            self._frames.append(frame)
            self._sound_queued.set()

    def finished(self, writer: PlayoutWriter) -> None:
        """Notes that a writer has no more frames."""
        if not writer.is_dead and not self._frames:
            self._stop(writer)

    def _played(self, writer: PlayoutWriter, frame: AudioFrame) -> None:
        """Counts a frame that was taken or handed over, and reports the first one."""
        begin = end = self._clock.now()
        has_gap = self._ran_dry
        if self.paced_by == "client":
            begin = self._client.take(samples_to_ms(len(frame.pcm), self.rate_hz) / 1000)
            end, has_gap = self._client.ends_at, writer.has_started and begin > writer.ends_at
        if has_gap:
            self._ran_dry = False
            self._metrics.count("earshot_playout_underruns")
        writer.count_played(len(frame.pcm), begin, end, has_gap=has_gap)
        if not writer.has_started:
            writer.has_started = True
            self._listener.playout_started(writer)

    def _paused(self) -> None:
        """Reports, after a pause was asked for, how long it took until the speaker got no more
        sound."""
        if self._pause_began_at is not None:
            paused_s = self._clock.now() - self._pause_began_at
            self._metrics.observe("earshot_barge_in_pause_seconds", paused_s)
            self._pause_began_at = None

    def _stop(self, writer: PlayoutWriter) -> None:
        self._end()
        if writer.has_started:
            self._listener.playout_stopped(writer)

    def _end(self) -> None:
        self._writer = None
        self._ran_dry = False
        self._is_idle.set()
