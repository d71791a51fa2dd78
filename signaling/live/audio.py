"""Audio of a GPT-Live session in both directions: muted input, and sound at the pace of speech."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import numpy as np

from core.audio import AudioFrame, Pcm, ms_to_samples, samples_to_ms
from core.conversation.events import FormatName
from media.resample import Resampler
from pipeline.session.session import Session
from signaling.realtime.protocol.audio_format import WIRE_RATE_HZ, OutputAudioEncoder

CHUNK_MS = 60
"Sound per event, in ms. Small devices have little memory, and each event costs some 100 bytes."

LEAD_MS = 180
"""Sound that is sent ahead of time, so that a late packet is not heard. A client has no way to drop
what it has, so this is also what it plays on after the user interrupts."""

POLL_S = 0.02
"Time between two looks for sound while an answer is made."

_STREAM = "output"
"The encoder's name for the sound of the session, which is one stream."


class LiveAudioPath:
    """Audio between a session and the transport of its client."""

    def __init__(
        self,
        session: Session,
        on_clause: Callable[[str], None],
        on_input: Callable[[AudioFrame], None],
        on_output: Callable[[AudioFrame | None], None],
    ) -> None:
        """`on_clause`: called with the text of each clause when its sound begins. `on_input`: with
        the sound of the microphone, also while it is muted. `on_output`: with the next 20 ms of
        sound; None for silence."""
        self._session, self._on_clause = session, on_clause
        self._on_input, self._on_output = on_input, on_output
        self._clause: tuple[str, int] | None = None
        "Response and number of the clause that began last."
        self.is_muted = False

    def feed(self, frame: AudioFrame) -> None:
        """Gives audio of the microphone to the session; silence while it is muted, so that a turn
        that had begun ends."""
        self._on_input(frame)
        if self.is_muted:
            frame = frame._replace(pcm=np.zeros_like(frame.pcm))
        self._session.feed(frame)

    def pull(self) -> AudioFrame | None:
        """Returns the next 20 ms of sound, see `Session.pull`."""
        clause = self._session.next_clause
        if clause is not None and clause[:2] != self._clause:
            self._clause = clause[:2]
            self._on_clause(clause[2])
        frame = self._session.pull()
        self._on_output(frame)
        return frame


class ReflectedSound:
    """Sound of one direction for sideband connections: 24 kHz PCM in pieces of CHUNK_MS."""

    def __init__(self) -> None:
        self._resampler: Resampler | None = None
        self._pieces: list[Pcm] = []
        self._length = 0

    def push(self, frame: AudioFrame) -> Pcm | None:
        """Adds sound. Returns a piece when it is long enough."""
        resampler = self._resampler
        if resampler is None or resampler.from_hz != frame.rate_hz:
            resampler = self._resampler = Resampler(frame.rate_hz, WIRE_RATE_HZ)
        pcm = resampler.push(frame.pcm)
        self._pieces.append(pcm)
        self._length += len(pcm)
        return self.rest() if self._length >= ms_to_samples(CHUNK_MS, WIRE_RATE_HZ) else None

    def rest(self) -> Pcm | None:
        """Returns what is left, because silence follows; None if there is nothing."""
        if not self._length:
            return None
        pcm = np.concatenate(self._pieces)
        self._pieces, self._length = [], 0
        return pcm


class PacedSender:
    """Sends a session's sound as events, as fast as it is heard. A task runs it."""

    def __init__(
        self,
        path: LiveAudioPath,
        session: Session,
        format_: FormatName,
        send: Callable[[str], Awaitable[None]],
    ) -> None:
        """`send`: sends sound as base64."""
        self._path, self._session = path, session
        self._format, self._send = format_, send
        self._encoder = OutputAudioEncoder()
        self._now = asyncio.get_running_loop().time
        self._ends_at = 0.0
        "Time at which the client will have played what it was sent."
        self.changed = asyncio.Event()
        "Set by the owner when something happened in the session, for there may be sound then."

    async def run(self) -> None:
        """Sends sound until it is cancelled."""
        while True:
            self.changed.clear()
            frames = self._chunk()
            if not frames:
                await self._wait_for_sound()
                continue
            pcm = np.concatenate([frame.pcm for frame in frames])
            for piece in self._encoder.push(_STREAM, pcm, self._format):
                await self._send(piece)
            now = self._now()
            length_s = samples_to_ms(len(pcm), frames[0].rate_hz) / 1000
            self._ends_at = max(self._ends_at, now) + length_s
            ahead_s = self._ends_at - now - LEAD_MS / 1000
            if ahead_s > 0:
                await asyncio.sleep(ahead_s)

    def _chunk(self) -> list[AudioFrame]:
        frames: list[AudioFrame] = []
        length_ms = 0.0
        while length_ms < CHUNK_MS and (frame := self._path.pull()) is not None:
            frames.append(frame)
            length_ms += samples_to_ms(len(frame.pcm), frame.rate_hz)
        return frames

    async def _wait_for_sound(self) -> None:
        """Waits until there may be sound again. After an answer, the rest that the resampler holds
        is sent first."""
        if not self._session.expects_response:
            for piece in self._encoder.finish(_STREAM):
                await self._send(piece)
            await self.changed.wait()
            return
        sound = self._session.next_sound_event
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL_S):
                await (self.changed.wait() if sound is None else sound.wait())
