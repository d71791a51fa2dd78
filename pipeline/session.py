"""One client's connection: its ear, its answers, its settings, its tasks. Doors drive it."""

import asyncio
import logging
from typing import NoReturn

from core.audio import AudioFrame, Pcm
from core.errors import EarshotError
from core.events import (
    ItemAdded,
    ItemDone,
    PlayoutCleared,
    PlayoutStarted,
    PlayoutStopped,
)
from core.ids import new_id
from core.items import Item
from core.queues import DropOldest
from engines.base import AsrResult
from pipeline.conversation import Conversation
from pipeline.hearing import Hearing
from pipeline.listening import Listening
from pipeline.playout import PacedBy, Playout
from pipeline.reporting import Reporting
from pipeline.responding import Responding
from pipeline.settings import ResponseRequest, SessionSettings
from pipeline.surroundings import Surroundings
from pipeline.turn import Turn

logger = logging.getLogger(__name__)

MAX_LIVE_FRAMES = 50
"One second of 20 ms frames: what is older has lost its moment."


class _Closed(Exception):
    """Ends a session's task group, and with it every task; never leaves `run`."""


class Session:
    """See docs/realtime.md for what a client sees of it. Methods never block."""

    def __init__(
        self,
        settings: SessionSettings,
        conversation: Conversation,
        paced_by: PacedBy,
        surroundings: Surroundings,
    ) -> None:
        self.id = new_id("sess")
        self.conversation_id = conversation.id
        self._engines, self._clock = surroundings.engines, surroundings.clock
        self._metrics, self._conversation = surroundings.metrics, conversation
        self._changed = asyncio.Event()
        "Set by every event: what a drain waits for may be over."
        self._reporting = Reporting(self.id, surroundings, self._changed.set)
        self.events, self._emit = self._reporting.events, self._reporting.emit
        self._frames: DropOldest[AudioFrame] = DropOldest(MAX_LIVE_FRAMES)
        self._hearing = Hearing(self._engines.vad.open())
        self._listening = Listening(
            self._hearing,
            self._engines,
            conversation.history,
            lambda: self.settings,
            self,
            self._clock,
            self._emit,
        )
        self._playout = Playout(paced_by, self, self._deliver, self._reporting.room)
        self._responding = Responding(
            conversation,
            surroundings,
            self._playout,
            self._listening,
            lambda: self.settings,
            self._reporting,
            self._changed.set,
        )
        self._tasks: asyncio.TaskGroup | None = None
        self.running = asyncio.Event()
        "Set once the tasks are there to take commands."
        self._closing = asyncio.Event()
        self.settings = settings
        self.configure(settings)

    # What doors call.

    async def run(self) -> None:
        """Live until `close`. A bug in any of its tasks ends it, as an ExceptionGroup."""
        self._conversation.speakers.append(self)
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                self.running.set()
                tasks.create_task(self._listening.run(self._frames, tasks), name="listen")
                tasks.create_task(self._responding.answering.run(tasks), name="answer")
                await self._until_closed()
        except* _Closed:
            logger.debug("= session %s closed", self.id)
        finally:
            self.close()
            self._listening.close()
            self._playout.clear()
            self._conversation.speakers.remove(self)
            self._frames.close()
            self.events.close()
            self._metrics.count("earshot_audio_frames_dropped", self._frames.dropped)

    def close(self) -> None:
        """Ask the session to end; idempotent."""
        self._closing.set()
        self._changed.set()

    async def settled(self) -> None:
        """Wait until nothing is being said, transcribed, answered or played."""
        while (
            self._listening.is_active
            or self._responding.answering.is_busy
            or self._playout.writer is not None
        ) and not self._closing.is_set():
            self._changed.clear()
            await self._changed.wait()

    def feed(self, frame: AudioFrame) -> None:
        """Live audio, 16 kHz; when the session lags a second behind, the oldest is dropped."""
        self._frames.put(frame)

    async def caught_up(self) -> None:
        """Wait until all that was fed is heard. For audio that comes faster than it was spoken."""
        await self._frames.drained()

    def configure(self, settings: SessionSettings) -> None:
        """Raises RequestError; the former settings then stay."""
        self._engines.check(settings)
        if self.settings.turn_detection is None and settings.turn_detection is not None:
            self._responding.put_aside()
        self.settings = settings
        self._hearing.configure(settings.turn_detection)

    def commit_input(self) -> None:
        """Raises RequestError input_audio_buffer_commit_empty. A closing session does nothing."""
        if self._tasks is None or self._closing.is_set():
            return
        for frame in self._frames.take():  # it was fed before the commit, so it belongs to it
            self._listening.listen(frame, self._tasks)
        self._listening.commit(self._tasks)

    def clear_input(self) -> None:
        self._frames.take()
        self._listening.clear()
        self._responding.decide()

    def add_item(self, item: Item, previous_item_id: str | None = None) -> None:
        """Raises RequestError item_already_exists, item_not_found, invalid_value."""
        previous = self._conversation.history.add(item, previous_item_id)
        self._emit(ItemAdded(item, previous))
        self._emit(ItemDone(item, previous))

    def create_response(self, request: ResponseRequest) -> None:
        """Answer what was said and written so far; audio that was just committed is waited for.

        Raises Conflict conversation_already_has_active_response, RequestError.
        """
        self._responding.create(request)

    def cancel_response(self, response_id: str | None = None) -> None:
        """Raises Conflict response_cancel_not_active."""
        self._responding.cancel(response_id)

    def clear_output(self) -> None:
        """Stop what is being played; an answer that is still generated goes on unheard."""
        self._responding.cut_playout()
        self._changed.set()

    def truncate(self, item_id: str, audio_end_ms: int) -> None:
        """The client played only this much of an answer. Raises RequestError."""
        self._responding.truncate(item_id, audio_end_ms)

    def pull(self) -> AudioFrame | None:
        """The next 20 ms at 48 kHz for a server-paced session; None: silence."""
        return self._playout.pull()

    def say(self, text: str) -> bool:
        """Announce something unasked, after what is being said. False: nobody would hear it."""
        return not self._closing.is_set() and self._responding.say(text)

    # What listening reports.

    def speech_started(self) -> None:
        self._responding.interrupt()

    def understood(self, turn: Turn, result: AsrResult) -> None:
        self._responding.understood(turn, result)

    def not_understood(self, turn: Turn, error: EarshotError) -> None:
        self._responding.not_understood(turn, error)

    # What playout reports.

    def playout_started(self, response_id: str) -> None:
        self._hearing.guard(is_guarded=True)
        self._emit(PlayoutStarted(response_id))
        self._responding.playout_started(response_id)

    def playout_stopped(self, response_id: str) -> None:
        self._hearing.guard(is_guarded=False)
        self._emit(PlayoutStopped(response_id))

    def playout_cleared(self, response_id: str) -> None:
        self._hearing.guard(is_guarded=False)
        self._emit(PlayoutCleared(response_id))

    # Within.

    async def _until_closed(self) -> NoReturn:
        await self._closing.wait()
        raise _Closed

    def _deliver(self, response_id: str, pcm: Pcm) -> None:
        self._responding.deliver(response_id, pcm)
