"""Calls of `POST /api/rtc/asr`. Each runs in a task of its own, for hours if its client wants
that."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, assert_never

from core.audio import AudioFrame, Pcm
from core.errors import EarshotError, OverloadedError, RequestError
from core.ids import new_id
from core.ports import Clock, WorkGuard
from core.queues import Outbox
from devices.willow.wis.asr import (
    WisTranscript,
    WisTranscription,
    open_transcription,
    partial_transcripts,
)
from devices.willow.wis.asr_params import AsrParams, AsrParamsReader
from devices.willow.wis.params import switch_of
from devices.willow.wis.rtc.messages import (
    RtcPing,
    RtcStart,
    RtcStop,
    failed,
    infer,
    log,
    partial,
    pong,
    read_message,
)
from devices.willow.wis.rtc.recording import RtcRecording
from media.webrtc.peer import CloseReason, Peer, PeerCallbacks, PeerSettings
from pipeline.transcription.recording import Transcriber
from serving.scheduling.scheduler import DecodePriority

logger = logging.getLogger(__name__)

CHANNEL_LABEL = "chat"

MAX_UNREAD = 64
"Limit of received messages that wait. A client sends two messages per sentence."

MAX_TAKES = 4
"Limit of recordings of one call whose result was not sent yet."

CHANNEL_TIMEOUT_S = 15
"Longest time from connected to an open channel; without a channel the call can do nothing."

VANISHED_TIMEOUT_S = 90
"""Time without any packet after which the client counts as gone. Between sentences a client sends
no sound, perhaps only SCTP's heartbeat every 30 s. Usually ICE notices earlier that a client is
gone."""

RETRY_AFTER_S = 5


def call_settings() -> PeerSettings:
    """Returns the settings of the peers of these calls."""
    return PeerSettings(channel_label=CHANNEL_LABEL, vanished_timeout_s=VANISHED_TIMEOUT_S)


class WillowCalls:
    """All calls of the door. `run` owns their tasks; cancelling it ends them."""

    def __init__(
        self,
        transcriber: Transcriber,
        asking: AsrParamsReader,
        clock: Clock,
        guard: WorkGuard,
        *,
        peer: PeerSettings,
        max_calls: int,
        max_audio_s: float,
    ) -> None:
        self.transcriber, self.asking, self.clock = transcriber, asking, clock
        self.peer_settings = peer
        self.max_audio_s = max_audio_s
        self._guard = guard
        self._max_calls = max_calls
        self._live: set[WillowCall] = set()
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def count(self) -> int:
        return len(self._live)

    async def run(self) -> None:
        """Runs the calls until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                await asyncio.Event().wait()
        finally:
            self._tasks = None

    async def start(self, offer_sdp: str, wishes: Mapping[str, Any]) -> str:
        """Starts a call and returns the SDP answer. wishes: parameters of the query.

        Raises OverloadedError, RequestError.
        """
        if self._tasks is None:
            raise OverloadedError(
                "no calls are accepted now, because the server is shutting down",
                retry_after_s=RETRY_AFTER_S,
                code="draining",
            )
        if self.count >= self._max_calls:
            raise OverloadedError(
                f"{self.count} calls are open, the limit", retry_after_s=RETRY_AFTER_S
            )
        call = WillowCall(self, wishes)
        self._live.add(call)
        self._tasks.create_task(self._guard(self._run(call, offer_sdp), call.id), name=call.id)
        return await call.answered

    async def _run(self, call: "WillowCall", offer_sdp: str) -> None:
        try:
            await call.run(offer_sdp)
        finally:
            self._live.discard(call)


class WillowCall:
    """One call. Create it in a running event loop."""

    def __init__(self, calls: WillowCalls, wishes: Mapping[str, Any]) -> None:
        self.id = new_id("rtc")
        self.answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """The SDP answer, or the error why there is none. If the waiting request is cancelled, the
        call ends."""
        self._calls = calls
        self._wishes = wishes
        "Parameters of the offer's query; those of a `stop` override them."
        self._expected: Mapping[str, Any] = wishes
        "Parameters that the next `stop` will probably have: those of the last one."
        self._take: RtcRecording | None = None
        "The recording between `start` and `stop`; None: there is none."
        self._takes: list[RtcRecording] = []
        "All recordings in progress, including those that wait for their tail or their text."
        self._opened = asyncio.Event()
        self._unread: Outbox[str | bytes] = Outbox(MAX_UNREAD)
        self._peer = Peer(
            PeerCallbacks(
                pull=lambda: None,
                on_frame=self._hear,
                on_message=self._unread.put,
                on_open=self._opened.set,
            ),
            calls.peer_settings,
        )

    async def run(self, offer_sdp: str) -> None:
        """Runs the call until the peer is gone, and then releases its resources."""
        try:
            answer = await self._peer.answer(offer_sdp)
        except EarshotError as error:
            if not self.answered.done():
                self.answered.set_exception(error)
            return
        except BaseException:
            self.answered.cancel()
            raise
        if self.answered.done():  # the request was cancelled: nobody waits for the answer
            await self._peer.close()
            return
        self.answered.set_result(answer)
        async with asyncio.TaskGroup() as tasks:
            talk = tasks.create_task(self._talk(), name=f"{self.id}-talk")
            reason = await self._peer.run()
            logger.info("= call %s ended: %s", self.id, reason)
            talk.cancel()

    def _hear(self, frame: AudioFrame) -> None:
        for take in self._takes:
            take.add(frame)

    async def _talk(self) -> None:
        """Handles the messages in order until the call ends."""
        try:
            async with asyncio.timeout(self._peer.settings.connect_timeout_s + CHANNEL_TIMEOUT_S):
                await self._opened.wait()
        except TimeoutError:
            logger.info("= call %s opened no data channel %r", self.id, CHANNEL_LABEL)
            self._peer.stop(CloseReason.CONNECT_TIMEOUT)
            return
        async with asyncio.TaskGroup() as tasks:
            async for text in self._unread:
                try:
                    self._obey(text, tasks)
                except RequestError as error:
                    self._peer.send(failed(str(error)))
            logger.warning("! call %s sent messages faster than the server can read them", self.id)
            self._peer.stop(CloseReason.LAGGING)

    def _obey(self, text: str | bytes, tasks: asyncio.TaskGroup) -> None:
        """Handles one message. Raises RequestError."""
        match read_message(text):
            case RtcPing(message):
                self._peer.send(pong(message))
            case RtcStart(_, wishes):
                self._start({**self._expected, **_named(wishes)}, tasks)
            case RtcStop(_, wishes):
                self._stop({**self._wishes, **_named(wishes)}, tasks)
            case unreachable:
                assert_never(unreachable)

    def _start(self, expected: Mapping[str, Any], tasks: asyncio.TaskGroup) -> None:
        if self._take is not None:
            raise RequestError("already recording; send stop first", code="already_recording")
        if len(self._takes) >= MAX_TAKES:
            raise RequestError(
                f"{len(self._takes)} recordings are waiting for their results, the limit",
                code="busy",
            )
        ask = self._calls.asking.read(expected)
        has_partials = switch_of(expected, "partials")
        before = self._takes[-1] if self._takes else None
        self._take = take = RtcRecording(self._calls.max_audio_s)
        self._takes.append(take)
        work = self._recognise(take, ask, before, has_partials=has_partials)
        tasks.create_task(work, name=f"{self.id}-take")
        self._peer.send(log("recording started"))

    def _stop(self, wishes: Mapping[str, Any], tasks: asyncio.TaskGroup) -> None:
        take, self._take = self._take, None
        if take is None:
            raise RequestError("not recording; send start first", code="not_recording")
        try:
            take.ask = self._calls.asking.read(wishes)
        except RequestError:
            take.close()
            raise
        self._expected = wishes
        tasks.create_task(self._finish(take), name=f"{self.id}-tail")

    async def _finish(self, take: RtcRecording) -> None:
        # the microphone is off: the last packet is held back until another one comes
        if not await take.tail():
            for frame in self._peer.source.flush():
                take.add(frame)
        take.close()

    async def _recognise(
        self,
        take: RtcRecording,
        expected: AsrParams,
        before: RtcRecording | None,
        *,
        has_partials: bool,
    ) -> None:
        """Recognises the recording while it arrives, with the expected parameters.

        Recognises it again if `stop` brings other parameters.
        """
        spoken: list[Pcm] = []
        try:
            async with self._hearing(expected) as found:
                async with self._following(expected) if has_partials else nullcontext() as follow:
                    async for pcm in take.pieces():
                        spoken.append(pcm)
                        await found.push(pcm)
                        if follow is not None:
                            follow(pcm)
                if take.ask is None:
                    return
                if take.ask == expected:
                    await self._tell(take, expected, await found.heard(), before)
                    return
            async with self._hearing(take.ask) as found:
                for pcm in spoken:
                    await found.push(pcm)
                await self._tell(take, take.ask, await found.heard(), before)
        except EarshotError as error:
            logger.warning("! call %s: %s (%s)", self.id, error, error.code)
            self._peer.send(failed(str(error)))
        finally:
            take.is_answered.set()
            self._takes.remove(take)
            if self._take is take:
                self._take = None

    def _following(self, ask: AsrParams) -> AbstractAsyncContextManager[Callable[[Pcm], None]]:
        def tell(text: str, stable: str) -> None:
            self._peer.send(partial(text, stable))

        calls = self._calls
        return partial_transcripts(calls.asking.recogniser(ask), ask.options, calls.clock, tell)

    def _hearing(self, ask: AsrParams) -> AbstractAsyncContextManager[WisTranscription]:
        calls = self._calls
        return open_transcription(
            calls.transcriber,
            ask,
            calls.clock,
            priority=DecodePriority.FINAL,
            max_audio_s=calls.max_audio_s,
        )

    async def _tell(
        self, take: RtcRecording, ask: AsrParams, heard: WisTranscript, before: RtcRecording | None
    ) -> None:
        if before is not None:
            await before.is_answered.wait()
        self._peer.send(infer(heard.text, heard.language, heard.translation, heard.model))
        if ask.note:
            self._peer.send(log(ask.note))
        if take.is_full:
            self._peer.send(log(f"only the first {heard.audio_ms / 1000:.0f} s were kept"))
        if heard.translation is not None:
            self._peer.send(log(f"translation: {heard.translation}"))
        took = f"{heard.audio_ms:.0f} ms of speech recognised {heard.infer_ms:.0f} ms after its end"
        self._peer.send(log(f"{took}, language {heard.language}"))


def _named(wishes: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Drops null values: they leave the choice as it was."""
    return {name: value for name, value in (wishes or {}).items() if value is not None}
