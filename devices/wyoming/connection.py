"""One Wyoming connection: its events in, one piece of work at a time. Sheet section 5."""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from wyoming.error import Error
from wyoming.event import Event
from wyoming.info import Info
from wyoming.ping import Pong

from core.errors import EarshotError
from devices.wyoming.answer import answer
from devices.wyoming.asked import read_format, read_text, read_transcribe, read_voicing
from devices.wyoming.hear import hear
from devices.wyoming.info import info_of
from devices.wyoming.speak import Speaking, TextQueue
from devices.wyoming.wire import Wire
from pipeline.engines import EngineSet
from pipeline.exchange import Exchanges
from pipeline.recording import Transcriber

logger = logging.getLogger(__name__)

IDLE_S = 300.0
"Without an event. Home Assistant makes a connection for each request."

MAX_QUEUED = 64
"Chunks that wait for the recogniser; then the client's sending waits, too."


@dataclass(frozen=True, slots=True)
class Services:
    """What connections are served with."""

    engines: EngineSet
    transcriber: Transcriber
    speaking: Speaking
    exchanges: Exchanges
    version: str

    def info(self) -> Info:
        return info_of(self.engines, self.version)


class Connection:
    """`run` until the client goes. Unknown events are left alone: new ones appear every few months.

    One piece of work at a time: a request that comes before the last one is answered waits, and
    with it whatever the client sends behind it.
    """

    def __init__(self, wire: Wire, services: Services, tasks: asyncio.TaskGroup) -> None:
        self._wire, self._services, self._tasks = wire, services, tasks
        self._work: asyncio.Task[None] | None = None
        self._transcribe: Event | None = None
        "What the sound that comes is wanted for; None: for nothing."
        self._sound: asyncio.Queue[Event] | None = None
        "Of the utterance that is being heard."
        self._texts: TextQueue | None = None
        "Of the text that is being spoken while it comes."

    async def run(self) -> None:
        """Raises RemoteProtocolError, ConnectionError."""
        try:
            while (event := await self._next()) is not None:
                try:
                    await self._take(event)
                except EarshotError as error:
                    await self._refuse(error)
        finally:
            if self._work is not None:
                self._work.cancel()

    async def _next(self) -> Event | None:
        try:
            async with asyncio.timeout(IDLE_S):
                return await self._wire.read()
        except TimeoutError:
            return None

    async def _take(self, event: Event) -> None:
        services = self._services
        match event.type:
            case "describe":
                await self._wire.send(services.info())
            case "ping":
                text = event.data.get("text")
                await self._wire.send(Pong(text=text if isinstance(text, str) else None))
            case "transcribe":
                read_transcribe(event, services.engines)  # what is wrong with it is said now
                self._transcribe = event
            case "audio-start" | "audio-chunk" | "audio-stop":
                await self._hear(event)
            case "transcript":
                await self._begin(answer(self._wire, event, services.exchanges), "answer")
            case "synthesize" if self._texts is None:
                text, voicing = read_text(event), read_voicing(event, services.engines)
                await self._begin(services.speaking.text(self._wire, text, voicing), "speak")
            case "synthesize-start" | "synthesize-chunk" | "synthesize-stop":
                await self._speak(event)

    async def _hear(self, event: Event) -> None:
        if event.type == "audio-start":
            read_format(event)
            if self._sound is not None:  # it was given up in the middle
                await self._drop()
        if self._sound is None:
            if self._transcribe is None:
                return  # sound that nobody asked to have heard; also the rest of a cancelled one
            self._sound = asyncio.Queue(MAX_QUEUED)
            model, options = read_transcribe(self._transcribe, self._services.engines)
            work = hear(self._wire, self._sound, self._services.transcriber, model, options)
            await self._begin(work, "hear")
        if event.type != "audio-start":
            await self._hand_over(self._sound, event)
        if event.type == "audio-stop":
            self._sound = self._transcribe = None

    async def _hand_over(self, sound: asyncio.Queue[Event], event: Event) -> None:
        """Unless the work that takes it is over, because it failed."""
        putting = self._tasks.create_task(sound.put(event), name="wyoming-sound")
        assert self._work is not None
        await asyncio.wait((putting, self._work), return_when=asyncio.FIRST_COMPLETED)
        putting.cancel()

    async def _speak(self, event: Event) -> None:
        match event.type:
            case "synthesize-start":
                if self._texts is not None:
                    await self._drop()
                voicing = read_voicing(event, self._services.engines)
                self._texts = TextQueue()
                speech = self._services.speaking.stream(self._wire, self._texts, voicing)
                await self._begin(speech, "speak")
            case "synthesize-chunk" if self._texts is not None:
                self._texts.add(read_text(event))
            case "synthesize-stop" if self._texts is not None:
                self._texts.end()
                self._texts = None

    async def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        if self._work is not None:
            await asyncio.wait((self._work,))
        self._work = self._tasks.create_task(self._done(work), name=f"wyoming-{name}")

    async def _done(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except EarshotError as error:
            await self._refuse(error)
        except ConnectionError:
            self._wire.close()

    async def _drop(self) -> None:
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait((self._work,))
        self._sound = self._texts = None

    async def _refuse(self, error: EarshotError) -> None:
        """Say why, and close: so clients know services. Sheet section 5."""
        logger.warning("! wyoming: %s (%s)", error, error.code)
        try:
            await self._wire.send(Error(text=str(error), code=error.code))
        except ConnectionError as gone:
            logger.debug("it could not be told: %s", gone)
        self._wire.close()
