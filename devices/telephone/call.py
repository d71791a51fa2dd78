"""One telephone call: passes sound, keys and hang-ups between its line and its session.

It has three tasks: one reads the line, one handles events of the session, one sends sound at the
pace of the line.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import numpy as np

from core.audio import ASR_RATE_HZ, PTIME_MS, AudioFrame, Pcm
from core.conversation.ids import new_id
from core.conversation.items import MessageItem, TextPart
from core.errors import Conflict, RemoteProtocolError
from core.ports import Clock
from devices.telephone.digits import DigitCollector
from media.pcm import Framer
from media.resample import Resampler
from pipeline.playout.playout import PACED_RATE_HZ
from pipeline.session.session import Session
from pipeline.shared.settings import ResponseRequest

LINE_RATE_HZ = 8_000
"Rate of telephone networks."

FRAME_SAMPLES = LINE_RATE_HZ * PTIME_MS // 1000
"Samples of 20 ms on the line."

SILENCE = np.zeros(FRAME_SAMPLES, np.int16)

_PLAYOUT_SILENCE = np.zeros(PACED_RATE_HZ * PTIME_MS // 1000, np.int16)


class LineInput:
    """Turns the caller's sound into frames for the session."""

    def __init__(self) -> None:
        self._resampler = Resampler(LINE_RATE_HZ, ASR_RATE_HZ, live=True)
        self._framer = Framer(ASR_RATE_HZ)

    def convert(self, pcm: Pcm) -> list[AudioFrame]:
        """Returns the frames that this sound completes."""
        return self._framer.push(self._resampler.push(pcm)) if len(pcm) else []


class LineOutput:
    """Turns the session's playout into frames of 20 ms for the line."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._resampler = Resampler(PACED_RATE_HZ, LINE_RATE_HZ, live=True)

    def frame(self) -> Pcm | None:
        """Returns the next frame; None: there is nothing to play."""
        frame = self._session.pull()
        return None if frame is None else self._resampler.push(frame.pcm)

    def drop(self) -> None:
        """Drops what the resampler still holds of an answer that was cut off."""
        self._resampler.push(_PLAYOUT_SILENCE)


MAX_LATE_S = 0.2
"""Sound that is sent at once to make up for a stall. What is later than this moves the pace
instead: a burst would fill the buffers of the line, and all that follows would be heard late."""

MAX_AHEAD_S = 10.0
"""Sound that may come before its time: after a stall of the network, seconds of it come at once. A
peer that sends more than this is no telephone, and would keep the server busy."""

IDLE_S = 30.0
"Limit of the time without a message of the line, which has 50 a second while a call lasts."

SEND_TIMEOUT_S = 10.0
"Limit for one message: a line that takes none for this long is gone."

_PTIME_S = PTIME_MS / 1000


@dataclass(frozen=True, slots=True)
class LineSound:
    """Sound of the caller at LINE_RATE_HZ."""

    pcm: Pcm = field(repr=False)


@dataclass(frozen=True, slots=True)
class LineKey:
    """The caller pressed a key."""

    digit: str


class LineBuffer(Protocol):
    """Buffer from which the other end of a line plays."""

    @property
    def lead_s(self) -> float:
        """Sound that is sent ahead of its time, in seconds."""
        ...

    def take_back(self) -> list[Pcm]:
        """Returns the frames that were sent and not played, oldest first. They count as not sent;
        `clear` must follow."""
        ...

    async def clear(self) -> None:
        """Tells the other end to drop what it has not played. Raises ConnectionError."""
        ...


class TelephoneLine(Protocol):
    """The connection of a call, as its door implements it."""

    @property
    def buffer(self) -> LineBuffer | None:
        """None: each frame is played as it comes, and the line needs silence, too."""
        ...

    def receive(self) -> AsyncIterator[LineSound | LineKey]:
        """Yields what the caller says and presses; ends when the caller has hung up, or is gone.
        Raises RemoteProtocolError."""
        ...

    async def send(self, pcm: Pcm) -> None:
        """Sends a frame of 20 ms. Raises ConnectionError."""
        ...

    async def hang_up(self) -> None:
        """Ends the call, if it has not ended."""
        ...


class CallEnd(Enum):
    """Reason why a call ended."""

    CALLER = "the caller hung up"
    SERVER = "the session ended"
    TOO_LONG = "it lasted as long as a call may last"


class TelephoneCall:
    """Serves one call, and is the `SpeakerBuffer` of its session. `run` returns when either side
    has ended the call."""

    def __init__(self, line: TelephoneLine, session: Session, clock: Clock) -> None:
        self._line, self._session, self._clock = line, session, clock
        self._buffer = line.buffer
        self._input, self._output = LineInput(), LineOutput(session)
        self._taken_back: deque[Pcm] = deque()
        "Frames that the line dropped because the answer paused; they come first when it goes on."
        self._must_clear = False
        "True: what the line has not played belongs to an answer that was cut off."
        self._digits = DigitCollector()
        self._ended: asyncio.Future[CallEnd] = asyncio.get_running_loop().create_future()
        self._began_at = clock.now()
        self._received_samples = 0

    async def run(self, max_call_s: float, greeting: str = "") -> CallEnd:
        """Serves the call until its end. `greeting`: words that are spoken first.

        Raises RemoteProtocolError in an ExceptionGroup for a line that breaks its protocol.
        """
        async with asyncio.TaskGroup() as tasks:
            work = [
                tasks.create_task(self._read(), name="telephone-read"),
                tasks.create_task(self._handle_session_events(), name="telephone-events"),
                tasks.create_task(self._speak(), name="telephone-speak"),
            ]
            self._session.attach_speaker(self)
            if greeting:
                self._session.say(greeting)
            try:
                async with asyncio.timeout(max_call_s):
                    end = await self._ended
            except TimeoutError:
                end = CallEnd.TOO_LONG
            self._session.close()
            for task in work:
                task.cancel()
        await self._line.hang_up()
        return end

    def _end(self, end: CallEnd) -> None:
        """Ends the call; the first reason counts."""
        if not self._ended.done():
            self._ended.set_result(end)

    # From the caller.

    async def _read(self) -> None:
        async for event in self._line.receive():
            match event:
                case LineSound(pcm=pcm):
                    self._hear(pcm)
                case LineKey(digit=digit):
                    self._press(digit)
        self._end(CallEnd.CALLER)

    def _hear(self, pcm: Pcm) -> None:
        """Passes sound to the session. Raises RemoteProtocolError."""
        self._received_samples += len(pcm)
        ahead_s = self._received_samples / LINE_RATE_HZ - (self._clock.now() - self._began_at)
        if ahead_s > MAX_AHEAD_S:
            raise RemoteProtocolError(
                f"sound came {ahead_s:.0f} s before its time; allowed: {MAX_AHEAD_S:.0f} s"
            )
        for frame in self._input.convert(pcm):
            self._session.feed(frame)

    def _press(self, digit: str) -> None:
        """Notes a key. It stops the answer, as the menus of telephones taught everybody."""
        with suppress(Conflict):
            self._session.cancel_response()
        self._session.clear_output()
        if text := self._digits.press(digit, self._clock.now()):
            self._answer(text)

    def _answer(self, text: str) -> None:
        """Lets the assistant answer written words of the caller."""
        self._session.add_item(MessageItem(new_id("item"), "user", (TextPart(text),)))
        with suppress(Conflict):  # an answer is on its way, and will know of the keys
            self._session.create_response(ResponseRequest())

    # To the caller.

    async def _handle_session_events(self) -> None:
        async for _ in self._session.events:
            pass  # the caller gets sound alone
        self._end(CallEnd.SERVER)

    def drop(self) -> float:
        """See `SpeakerBuffer`."""
        self._output.drop()
        unheard = len(self._taken_back)
        self._taken_back.clear()
        if self._buffer is not None:
            unheard += len(self._buffer.take_back())
            self._must_clear = True
        return unheard * PTIME_MS

    async def _speak(self) -> None:
        """Sends sound at the pace of the line, as far ahead as its buffer may be filled."""
        lead_s = 0.0 if self._buffer is None else self._buffer.lead_s
        due_at = self._clock.now()
        while True:
            if text := self._digits.tick(self._clock.now()):
                self._answer(text)
            await self._stop_line()
            now = self._clock.now()
            frame = self._next_frame()
            if frame is None:
                if self._buffer is None:
                    await self._sent(self._line.send(SILENCE))
                await self._sound(_PTIME_S)
                due_at = max(self._clock.now(), due_at)
                continue
            await self._sent(self._line.send(frame))
            due_at = max(due_at + _PTIME_S, now - MAX_LATE_S)
            await asyncio.sleep(max(0.0, due_at - lead_s - self._clock.now()))

    def _next_frame(self) -> Pcm | None:
        """Returns the frame to send; None: there is nothing to play."""
        if self._taken_back and not self._session.is_playout_paused:
            return self._taken_back.popleft()
        return self._output.frame()

    async def _stop_line(self) -> None:
        """Empties the line's buffer when the answer was cut off or has paused."""
        if self._buffer is None:
            return
        if self._session.is_playout_paused and (waiting := self._buffer.take_back()):
            self._taken_back.extendleft(reversed(waiting))
            self._must_clear = True
        if self._must_clear:
            self._must_clear = False
            await self._sent(self._buffer.clear())

    async def _sound(self, limit_s: float) -> None:
        """Waits until there is sound to send, at most `limit_s`."""
        next_sound = self._session.next_sound_event
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await (next_sound.wait() if next_sound is not None else asyncio.sleep(limit_s))

    async def _sent(self, sending: Awaitable[None]) -> None:
        """Waits for a message to be sent. The call ends if the line is gone."""
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await sending
        except (ConnectionError, TimeoutError):
            self._end(CallEnd.CALLER)
