"""One board's connection: passes messages and audio between its WebSocket and its session.

It has three tasks: one reads, one handles events of the session, one sends audio at the pace of the
board. `firmware_protocol.xiaozhi.state_machine` decides what to do.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from aiohttp import WSCloseCode, WSMsgType
from aiohttp import web as aioweb

from core.conversation.events import SpeakerRecognised, TurnTimeline
from core.conversation.speakers import SpeakerMatch
from core.errors import RemoteProtocolError
from core.ports import Clock, Metrics
from devices.fleet.arbitration import WakeLevel
from devices.fleet.directory import Device
from devices.fleet.presence import DeviceActivity, DeviceNotification, Presence
from devices.fleet.wake_arbiter import ReportedWakeWord, WakeArbiter, plain_wake_word
from devices.xiaozhi.audio import DeviceAudioInput, DeviceAudioOutput, WakeWordAudio
from devices.xiaozhi.device_tools import ConnectionTools
from devices.xiaozhi.session_bridge import SessionBridge, error_in
from firmware_protocol.xiaozhi.errors import BadMessage
from firmware_protocol.xiaozhi.framing import (
    AudioPacket,
    ProtocolVersion,
    decode_frame,
    encode_audio,
)
from firmware_protocol.xiaozhi.json_codec import decode_device_message, encode_message
from firmware_protocol.xiaozhi.mcp import Json
from firmware_protocol.xiaozhi.messages import (
    WAKE_WORD_DETECTED,
    AbortMessage,
    DeviceHello,
    McpAnswer,
    McpRequest,
    ServerMessage,
    SystemMessage,
)
from firmware_protocol.xiaozhi.state_machine import (
    CloseConnection,
    Dialogue,
    DialogueAction,
    DialogueSettings,
    ReportWakeWord,
    SendMessage,
)
from pipeline.session.session import Session
from pipeline.shared.settings import SessionSettings

# Close reasons.


@dataclass(frozen=True, slots=True)
class XiaozhiCloseReason:
    """Reason why a connection ends, and the close code that its board gets."""

    reason: str
    code: int = WSCloseCode.OK


LEFT = XiaozhiCloseReason("the device left")
CLOSED = XiaozhiCloseReason("closed", WSCloseCode.POLICY_VIOLATION)
OVER = XiaozhiCloseReason("going_away", WSCloseCode.SERVICE_RESTART)
HELLO_EXPECTED = XiaozhiCloseReason("hello_expected", WSCloseCode.PROTOCOL_ERROR)


logger = logging.getLogger(__name__)

POLL_S = 0.02
"Interval in which unannounced audio and the end of the response are noticed."

TICK_S = 1.0
"Interval while nothing is played, for time limits of some seconds."

SEND_TIMEOUT_S = 10.0
"Limit for one message: a board that takes none for this long is gone or hangs."


@dataclass(frozen=True, slots=True, kw_only=True)
class XiaozhiContext:
    """Device, settings and services of a connection."""

    device: Device
    settings: SessionSettings
    "Settings that its session begins with."
    dialogue: DialogueSettings
    version: str
    "Version of this server."
    clock: Clock
    metrics: Metrics
    presence: Presence
    wake_arbiter: WakeArbiter
    volume_of: Callable[[str], int | None]
    "Returns the volume that a person wants, by the person's id; None: that of the device."
    image_url: Callable[[str], Awaitable[str]]
    """Returns the URL of a firmware version, or of the newest one if the version is empty. An empty
    URL means that there is no such image."""


class XiaozhiConnection:
    """Serves one connection of a board; also the `ConnectedDevice` of its device.

    `run` returns when either side has ended the connection.
    """

    def __init__(
        self,
        ws: aioweb.WebSocketResponse,
        session: Session,
        framing: ProtocolVersion,
        context: XiaozhiContext,
    ) -> None:
        self._ws, self._session, self._framing, self._context = ws, session, framing, context
        self._clock, self._metrics = context.clock, context.metrics
        self._dialogue = Dialogue(session.id, self._clock.now(), context.dialogue)
        self._audio_input, self._audio_output = DeviceAudioInput(), DeviceAudioOutput(session)
        self._bridge = SessionBridge(
            self._dialogue, session, self._audio_output, context.settings, self._clock
        )
        self.tools = ConnectionTools(self._ask_tool, context.version)
        self._tool_requests: asyncio.Task[None] | None = None
        self._own_volume = context.device.profile.volume
        "Volume of the device's profile; None: it has none."
        self._volume = self._own_volume
        "Volume that was set last; None: that of the device's own buttons."
        self._activity_changed = asyncio.Event()
        "Set when there is something to play, or to stop."
        self._ended: asyncio.Future[XiaozhiCloseReason] = asyncio.get_running_loop().create_future()
        self._invalid_messages = 0
        self._last_activity: DeviceActivity = "idle"
        self._wake_audio = WakeWordAudio()
        self._wake_word = ""
        "Wake word that began the conversation; empty: none did."
        self._reported: ReportedWakeWord | None = None

    # `ConnectedDevice`, used by presence.

    @property
    def activity(self) -> DeviceActivity:
        return self._dialogue.activity

    @property
    def timing(self) -> Mapping[str, float] | None:
        return self._bridge.marks

    async def notify(self, notice: DeviceNotification) -> bool:
        """Announces the text: a board cannot fetch sound. See `ConnectedDevice`."""
        if not (self._is_here and notice.text):
            return False
        return self._session.say(notice.text, voice=notice.voice, language=notice.language)

    @property
    def can_be_started(self) -> bool:
        """See `StartableDevice`. A board in auto mode listens after each sentence."""
        return self._is_here

    @property
    def can_be_asked(self) -> bool:
        """See `AskableDevice`."""
        return self._is_here

    async def ask(self, question: str) -> str | None:
        """See `AskableDevice`. A board in auto mode listens after each sentence of the server."""
        return await self._session.ask(question) if self._is_here else None

    async def restart(self) -> bool:
        if self._ended.done():
            return False
        await self._send(SystemMessage("reboot"))
        return True

    async def update(self, firmware: str) -> bool:
        """Makes the board fetch an image of this server. Raises RequestError for a URL."""
        url = await self._context.image_url(firmware)
        return bool(url) and not self._ended.done() and await self.tools.update(url)

    async def stop(self) -> None:
        """Does what the board's own button does while it speaks. See `StoppableDevice`."""
        if not self._ended.done():
            await self._run_actions(self._dialogue.receive(AbortMessage(), self._clock.now()))

    async def set_volume(self, volume: int) -> None:
        """Sets the volume of the device for this and later answers. See `AdjustableDevice`."""
        self._own_volume = self._volume = volume
        if not self._ended.done():
            await self.tools.set_volume(volume)

    async def close(self) -> None:
        self._end(CLOSED)

    # `WakeContender`, used by the arbitration of wake words.

    connects_when_woken = True

    @property
    def contender_id(self) -> str:
        return self._context.device.id

    @property
    def contender_area(self) -> str:
        return self._context.device.area

    def listens_for(self, wake_word: str) -> bool:
        own = plain_wake_word(self._wake_word)
        return not self._ended.done() and self._dialogue.is_waiting and own in ("", wake_word)

    @property
    def _is_here(self) -> bool:
        """True while the board can be spoken to."""
        return not self._ended.done() and self._dialogue.features is not None

    # The connection.

    async def run(self) -> XiaozhiCloseReason:
        """Serves the connection until its end. Raises RemoteProtocolError after bytes that cannot
        be decoded."""
        async with asyncio.TaskGroup() as tasks:
            work = [
                tasks.create_task(self._read(tasks), name="xiaozhi-read"),
                tasks.create_task(self._handle_session_events(tasks), name="xiaozhi-events"),
                tasks.create_task(self._speak(), name="xiaozhi-speak"),
            ]
            end = await self._ended
            self._session.close()
            await self._ws.close(code=end.code, message=end.reason.encode())
            for task in (*work, self._tool_requests):
                if task is not None:
                    task.cancel()
        if self._audio_input.invalid_packets or self._invalid_messages:
            logger.warning(
                "! device %s sent %d invalid Opus packets and %d invalid messages",
                self._context.device.id,
                self._audio_input.invalid_packets,
                self._invalid_messages,
            )
        return end

    async def _read(self, tasks: asyncio.TaskGroup) -> None:
        async for message in self._ws:
            # after a stall, or from a flood, many messages are there at once
            await asyncio.sleep(0)
            match message.type:
                case WSMsgType.BINARY:
                    packet = decode_frame(self._framing, message.data)
                    if isinstance(packet, AudioPacket):
                        self._feed_audio(packet.payload)
                    else:
                        await self._handle_message(packet.payload, tasks)
                case WSMsgType.TEXT:
                    await self._handle_message(message.data, tasks)
                case WSMsgType.ERROR:  # aiohttp has closed it already, with a code for the error
                    raise RemoteProtocolError(f"the WebSocket failed: {message.data}")
                case _:
                    break
        self._end(LEFT)

    def _feed_audio(self, payload: bytes) -> None:
        """Passes a packet of the microphone to the session, if the board may speak now. What comes
        before holds the wake word."""
        if not self._dialogue.takes_audio:
            if self._dialogue.is_waiting:
                self._wake_audio.push(payload, self._dialogue.packet_ms)
            return
        before = self._audio_input.invalid_packets
        for frame in self._audio_input.decode(payload, self._dialogue.packet_ms):
            self._session.feed(frame)
            if self._reported is not None and not self._reported.decided.done():
                self._context.wake_arbiter.hear(self, frame.pcm)
        if self._audio_input.invalid_packets > before:
            self._metrics.count("earshot_xiaozhi_bad_input", kind="packet")

    async def _handle_message(self, text: str | bytes, tasks: asyncio.TaskGroup) -> None:
        try:
            message = decode_device_message(text)
        except BadMessage as error:
            self._note_invalid_message(error)
            return
        if isinstance(message, McpAnswer):
            self.tools.receive(message.payload)
            return
        is_woken = isinstance(message, AbortMessage) and message.reason == WAKE_WORD_DETECTED
        if is_woken and self._wake_word:
            self._context.wake_arbiter.claim(self, self._wake_word)
        await self._run_actions(self._dialogue.receive(message, self._clock.now()))
        has_tools = isinstance(message, DeviceHello) and message.features.mcp
        if has_tools and self._tool_requests is None:
            volume = self._own_volume
            self._tool_requests = tasks.create_task(self.tools.run(volume), name="xiaozhi-tools")

    def _note_invalid_message(self, error: BadMessage) -> None:
        """Counts the message. Only the first one is logged at INFO: a board sends the same bad text
        again and again."""
        self._invalid_messages += 1
        self._metrics.count("earshot_xiaozhi_bad_input", kind="text")
        level = logging.INFO if self._invalid_messages == 1 else logging.DEBUG
        logger.log(level, "! device %s: a message is left out: %s", self._context.device.id, error)

    # Events of the session.

    async def _handle_session_events(self, tasks: asyncio.TaskGroup) -> None:
        device_id, presence = self._context.device.id, self._context.presence
        async for session_event in self._session.events:
            await self._run_actions(self._bridge.take_event(session_event))
            if isinstance(session_event, TurnTimeline):
                presence.note_turn(device_id)
            elif isinstance(session_event, SpeakerRecognised):
                self._set_volume(session_event.speaker, tasks)
            elif code := error_in(session_event):
                presence.note_error(device_id, code)
        await self._play_out()
        self._end(OVER)

    def _set_volume(self, speaker: SpeakerMatch | None, tasks: asyncio.TaskGroup) -> None:
        """Sets the volume that the speaker wants, or else that of the device. A device without a
        volume of its own keeps what its buttons set: there is none to go back to."""
        own = self._own_volume
        wanted = self._context.volume_of(speaker.id) if speaker is not None else None
        volume = own if wanted is None else wanted
        if own is None or volume is None or volume == self._volume:
            return
        self._volume = volume
        tasks.create_task(self.tools.set_volume(volume), name="xiaozhi-volume")

    async def _play_out(self) -> None:
        """Waits until the board has played the last word: it falls silent when the connection
        closes."""
        left_s = self._dialogue.pacer.finished_at() - self._clock.now()
        if self._dialogue.is_speaking and left_s > 0:
            await asyncio.sleep(left_s)
        await self._run_actions(self._dialogue.interrupted())

    # Playout.

    async def _speak(self) -> None:
        while True:
            now, is_answering = self._clock.now(), self._session.expects_response
            await self._run_actions(self._dialogue.tick(now, is_answering=is_answering))
            if self._dialogue.is_speaking:
                await self._send_packet()
                continue
            # e.g. there was no text yet when the response began
            if self._session.next_clause is not None:
                await self._run_actions(self._dialogue.answer_begun(now))
                continue
            self._activity_changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._activity_changed.wait()

    async def _send_packet(self) -> None:
        """Waits until a packet is due, or sends one that is. Without sound it waits for sound."""
        pacer = self._dialogue.pacer
        wait_s = pacer.due_at() - self._clock.now()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
            return  # it may have been interrupted meanwhile
        if clause := self._audio_output.new_clause():
            await self._run_actions(self._dialogue.clause(clause))
        packet = self._audio_output.packet()
        if packet is None and not self._session.expects_response:
            packet = self._audio_output.last_packet()
        if packet is not None:
            pacer.sent(self._clock.now())
            await self._send_bytes(encode_audio(self._framing, packet, self._sent_ms))
            return
        next_sound = self._session.next_sound_event
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL_S):
                await (next_sound.wait() if next_sound is not None else asyncio.sleep(POLL_S))

    @property
    def _sent_ms(self) -> int:
        """Returns the timestamp for protocol 2. The board returns it with the audio that it records
        meanwhile."""
        return round(1000 * self._clock.now())

    # Actions of the state machine.

    async def _run_actions(self, actions: Iterable[DialogueAction]) -> None:
        for action in actions:
            match action:
                case SendMessage(message=message):
                    await self._send(message)
                case CloseConnection(reason=reason):
                    self._end(
                        HELLO_EXPECTED if reason == "hello_expected" else XiaozhiCloseReason(reason)
                    )
                case ReportWakeWord(wake_word=wake_word):
                    self._report_wake_word(wake_word)
                case _:
                    self._bridge.run_action(action)
        self._activity_changed.set()
        if self._last_activity != self._dialogue.activity:
            self._last_activity = self._dialogue.activity
            self._context.presence.note_change()

    def _report_wake_word(self, wake_word: str) -> None:
        self._wake_word, level_dbfs = wake_word, self._wake_audio.take_level()
        level = None if level_dbfs is None else WakeLevel(level_dbfs, "wake_word")
        self._reported = self._context.wake_arbiter.report(
            self, wake_word, level, is_measured=level is None, on_decided=self._take_decision
        )

    def _take_decision(self, won: bool) -> None:
        if not won:
            self._dialogue.wake_word_lost(self._clock.now())
            self._activity_changed.set()

    async def _ask_tool(self, request: Json) -> None:
        await self._send(McpRequest(dict(request)))

    async def _send(self, message: ServerMessage) -> None:
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await self._ws.send_str(encode_message(message))
        except (ConnectionError, TimeoutError):
            self._end(LEFT)

    async def _send_bytes(self, frame: bytes) -> None:
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await self._ws.send_bytes(frame)
        except (ConnectionError, TimeoutError):
            self._end(LEFT)

    def _end(self, end: XiaozhiCloseReason) -> None:
        """Ends the connection; the first reason counts."""
        if not self._ended.done():
            self._ended.set_result(end)
