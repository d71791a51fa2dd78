"""Calls of `POST /api/rtc/asr`. Each runs in a task of its own, for hours if its client wants
that."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, nullcontext
from typing import assert_never

from core.access.limits import CapacityLimit
from core.access.named_key import CALLER_KEY, KeySessions, NamedKey, places_for_owner
from core.audio import AudioFrame, Pcm
from core.conversation.ids import new_id
from core.errors import EarshotError, OverloadedError, RequestError
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
from serving.asr.scheduling import DecodePriority

logger = logging.getLogger(__name__)

CHANNEL_LABEL = "chat"
"Label of the data channel that WIS's clients open."

MAX_UNREAD = 64
"Limit of received messages that wait. A client sends two messages per sentence."

MAX_RECORDINGS = 4
"Limit of recordings of one call whose result was not sent yet."

CHANNEL_TIMEOUT_S = 15
"Longest time from connected to an open channel; without a channel the call can do nothing."

VANISHED_TIMEOUT_S = 90
"""Time without any packet after which the client counts as gone. Between sentences a client sends
no sound, perhaps only SCTP's heartbeat every 30 s. Usually ICE notices earlier that a client is
gone."""

RETRY_AFTER_S = 5
"Seconds after which a refused client should try again."


def call_settings() -> PeerSettings:
    """Returns the settings of the peers of these calls."""
    return PeerSettings(channel_label=CHANNEL_LABEL, vanished_timeout_s=VANISHED_TIMEOUT_S)


class WillowCalls:
    """All calls of the door. `run` owns their tasks; cancelling it ends them."""

    def __init__(
        self,
        transcriber: Transcriber,
        params_reader: AsrParamsReader,
        clock: Clock,
        guard: WorkGuard,
        key_sessions: KeySessions,
        *,
        peer: PeerSettings,
        max_calls: int,
        max_audio_s: float,
    ) -> None:
        self.transcriber, self.params_reader, self.clock = transcriber, params_reader, clock
        self.peer_settings = peer
        self.max_audio_s = max_audio_s
        self._guard = guard
        self._key_sessions = key_sessions
        self._places = CapacityLimit(
            max_calls, "{limit} calls are open, the limit", retry_after_s=RETRY_AFTER_S
        )
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

    async def start(self, offer_sdp: str, params: Mapping[str, object]) -> str:
        """Starts a call and returns the SDP answer. params: parameters of the query.

        Raises OverloadedError, RequestError.
        """
        if self._tasks is None:
            raise OverloadedError(
                "no calls are accepted now, because the server is shutting down",
                retry_after_s=RETRY_AFTER_S,
                code="draining",
            )
        with ExitStack() as places:
            places.enter_context(self._places.take(places_for_owner()))
            places.enter_context(self._key_sessions.take())
            call = WillowCall(self, params)
            work = self._run(call, offer_sdp, places.pop_all())
        self._live.add(call)
        self._tasks.create_task(self._guard(work, call.id), name=call.id)
        return await call.answered

    def end_all_of(self, named_key: NamedKey) -> None:
        """Ends the calls that a named key has opened, without waiting."""
        for call in self._live:
            if call.opener is not None and call.opener.id == named_key.id:
                call.hang_up()

    async def _run(self, call: "WillowCall", offer_sdp: str, places: ExitStack) -> None:
        """Runs a call. places: those that it takes; they are free again when it ends."""
        with places:
            try:
                await call.run(offer_sdp)
            finally:
                self._live.discard(call)


class WillowCall:
    """One call. Create it in a running event loop."""

    def __init__(self, calls: WillowCalls, params: Mapping[str, object]) -> None:
        self.id = new_id("rtc")
        self.answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """The SDP answer, or the error why there is none. If the waiting request is cancelled, the
        call ends."""
        self.opener = CALLER_KEY.get()
        "Named key of the caller."
        self._calls = calls
        self._query = params
        "Parameters of the offer's query; those of a `stop` override them."
        self._expected_params: Mapping[str, object] = params
        "Parameters that the next `stop` will probably have: those of the last one."
        self._recording: RtcRecording | None = None
        "The recording between `start` and `stop`; None: there is none."
        self._recordings: list[RtcRecording] = []
        "All recordings in progress, including those that wait for their tail or their text."
        self._opened = asyncio.Event()
        self._unread: Outbox[str | bytes] = Outbox(MAX_UNREAD)
        self._peer = Peer(
            PeerCallbacks(
                pull=lambda: None,
                on_frame=self._on_frame,
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
            channel_task = tasks.create_task(self._serve_channel(), name=f"{self.id}-talk")
            reason = await self._peer.run()
            logger.info("= call %s ended: %s", self.id, reason)
            channel_task.cancel()

    def hang_up(self) -> None:
        """Asks the call to end, without waiting."""
        self._peer.stop()

    def _on_frame(self, frame: AudioFrame) -> None:
        for recording in self._recordings:
            recording.add(frame)

    async def _serve_channel(self) -> None:
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
                    self._handle_message(text, tasks)
                except RequestError as error:
                    self._peer.send(failed(str(error)))
            logger.warning("! call %s sent messages faster than the server can read them", self.id)
            self._peer.stop(CloseReason.LAGGING)

    def _handle_message(self, text: str | bytes, tasks: asyncio.TaskGroup) -> None:
        """Handles one message. Raises RequestError."""
        match read_message(text):
            case RtcPing(message):
                self._peer.send(pong(message))
            case RtcStart(_, params):
                self._start({**self._expected_params, **_without_nulls(params)}, tasks)
            case RtcStop(_, params):
                self._stop({**self._query, **_without_nulls(params)}, tasks)
            case unreachable:
                assert_never(unreachable)

    def _start(self, expected_params: Mapping[str, object], tasks: asyncio.TaskGroup) -> None:
        if self._recording is not None:
            raise RequestError("already recording; send stop first", code="already_recording")
        if len(self._recordings) >= MAX_RECORDINGS:
            raise RequestError(
                f"{len(self._recordings)} recordings are waiting for their results, the limit",
                code="busy",
            )
        params = self._calls.params_reader.read(expected_params)
        has_partials = switch_of(expected_params, "partials")
        previous = self._recordings[-1] if self._recordings else None
        self._recording = recording = RtcRecording(self._calls.max_audio_s)
        self._recordings.append(recording)
        work = self._recognise(recording, params, previous, has_partials=has_partials)
        tasks.create_task(work, name=f"{self.id}-recording")
        self._peer.send(log("recording started"))

    def _stop(self, params: Mapping[str, object], tasks: asyncio.TaskGroup) -> None:
        recording, self._recording = self._recording, None
        if recording is None:
            raise RequestError("not recording; send start first", code="not_recording")
        try:
            recording.params = self._calls.params_reader.read(params)
        except RequestError:
            recording.close()
            raise
        self._expected_params = params
        tasks.create_task(self._finish(recording), name=f"{self.id}-tail")

    async def _finish(self, recording: RtcRecording) -> None:
        # the microphone is off: the last packet is held back until another one comes
        if not await recording.tail():
            for frame in self._peer.source.flush():
                recording.add(frame)
        recording.close()

    async def _recognise(
        self,
        recording: RtcRecording,
        expected_params: AsrParams,
        previous: RtcRecording | None,
        *,
        has_partials: bool,
    ) -> None:
        """Recognises the recording while it arrives, with the expected parameters.

        Recognises it again if `stop` brings other parameters.
        """
        pieces: list[Pcm] = []
        try:
            async with self._open_transcription(expected_params) as transcription:
                async with (
                    self._open_partials(expected_params)
                    if has_partials
                    else nullcontext() as push_partial
                ):
                    async for pcm in recording.pieces():
                        pieces.append(pcm)
                        await transcription.push(pcm)
                        if push_partial is not None:
                            push_partial(pcm)
                if recording.params is None:
                    return
                if recording.params == expected_params:
                    await self._send_result(
                        recording, expected_params, await transcription.transcript(), previous
                    )
                    return
            async with self._open_transcription(recording.params) as transcription:
                for pcm in pieces:
                    await transcription.push(pcm)
                await self._send_result(
                    recording, recording.params, await transcription.transcript(), previous
                )
        except EarshotError as error:
            logger.warning("! call %s: %s (%s)", self.id, error, error.code)
            self._peer.send(failed(str(error)))
        finally:
            recording.is_answered.set()
            self._recordings.remove(recording)
            if self._recording is recording:
                self._recording = None

    def _open_partials(
        self, params: AsrParams
    ) -> AbstractAsyncContextManager[Callable[[Pcm], None]]:
        def on_partial(text: str, stable: str) -> None:
            self._peer.send(partial(text, stable))

        calls = self._calls
        return partial_transcripts(
            calls.params_reader.recogniser(params), params.options, calls.clock, on_partial
        )

    def _open_transcription(
        self, params: AsrParams
    ) -> AbstractAsyncContextManager[WisTranscription]:
        calls = self._calls
        return open_transcription(
            calls.transcriber,
            params,
            calls.clock,
            priority=DecodePriority.FINAL,
            max_audio_s=calls.max_audio_s,
        )

    async def _send_result(
        self,
        recording: RtcRecording,
        params: AsrParams,
        transcript: WisTranscript,
        previous: RtcRecording | None,
    ) -> None:
        if previous is not None:
            await previous.is_answered.wait()
        self._peer.send(
            infer(transcript.text, transcript.language, transcript.translation, transcript.model)
        )
        if params.note:
            self._peer.send(log(params.note))
        if recording.is_full:
            self._peer.send(log(f"only the first {transcript.audio_ms / 1000:.0f} s were kept"))
        if transcript.translation is not None:
            self._peer.send(log(f"translation: {transcript.translation}"))
        audio_ms, infer_ms = transcript.audio_ms, transcript.infer_ms
        took = f"{audio_ms:.0f} ms of speech recognised {infer_ms:.0f} ms after its end"
        self._peer.send(log(f"{took}, language {transcript.language}"))


def _without_nulls(params: Mapping[str, object] | None) -> Mapping[str, object]:
    """Drops null values: they leave the choice as it was."""
    return {name: value for name, value in (params or {}).items() if value is not None}
