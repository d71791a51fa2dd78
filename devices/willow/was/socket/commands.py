"""Runs commands of devices in was_mode and sends the answer over their socket, once.

A command arrives in two ways. The words of a `POST /api/willow` by a known device are run at once.
The device then reads the response to that POST and sends the same words as `cmd endpoint`, as it
does with any WAS: that is not a second command.
"""

import asyncio
import logging
from collections import deque
from dataclasses import dataclass, field

from core.errors import EarshotError
from core.ports import Clock, DeviceLocation, WorkGuard
from devices.willow.was.connected_devices import WillowDevices
from devices.willow.was.socket.connection import WillowConnection
from firmware_protocol.willow.messages import EndpointResult
from pipeline.session.one_shot import OneShotRequest, OneShotResponses
from pipeline.shared.settings import ConversationProfile, InitialSettings
from pipeline.tools.fillers import Fillers

logger = logging.getLogger(__name__)

MAX_WAITING = 4
"Limit of the commands of one device that wait for the previous one."

REPEAT_TIMEOUT_S = 15.0
"Time after its POST in which a device may send the same words. Usually it does so within a second."

ELLIPSIS = "…"
"End of a text that was cut to fit into the response of a POST."


@dataclass(slots=True)
class DeviceCommand:
    """One command of one device."""

    device_id: str
    text: str
    language: str
    recognised_at_s: float
    "Time when the words were known, in monotonic seconds."
    asr_ms: float = 0.0
    "Time from the end of speech to the words, if the server recognised them."
    may_send_result: asyncio.Event = field(default_factory=asyncio.Event)
    "Set once the device has the response of its POST: only then does it wait for a result."
    is_repeated: bool = False
    "True once the device has sent the same words over its socket."
    result: EndpointResult = field(default_factory=lambda: EndpointResult(ok=False, speech=""))

    def is_same(self, text: str) -> bool:
        """Returns True if `text` is this command, perhaps cut at its end."""
        own, other = _plain(self.text), _plain(text)
        if other.endswith(ELLIPSIS):
            return own.startswith(other.removesuffix(ELLIPSIS).rstrip())
        return own == other


@dataclass(slots=True)
class _CommandQueue:
    """Commands of one device, in order."""

    waiting: deque[DeviceCommand] = field(default_factory=deque[DeviceCommand])
    recent: deque[DeviceCommand] = field(
        default_factory=lambda: deque[DeviceCommand](maxlen=MAX_WAITING)
    )
    "Commands of POSTs, whose words the device has yet to send."
    is_busy: bool = False


class DeviceCommands:
    """Runs the commands of all devices. `run` must be running: it owns the tasks."""

    def __init__(
        self,
        one_shot_responses: OneShotResponses,
        connected_devices: WillowDevices,
        clock: Clock,
        guard: WorkGuard,
        default_settings: InitialSettings,
    ) -> None:
        self._one_shot_responses, self._connected_devices, self._clock = (
            one_shot_responses,
            connected_devices,
            clock,
        )
        self._guard, self._default_settings = guard, default_settings
        self._queues: dict[str, _CommandQueue] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Runs the commands until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                await asyncio.Event().wait()
        finally:
            self._tasks = None

    def run_transcript(
        self, connection: WillowConnection, text: str, language: str, asr_ms: float
    ) -> DeviceCommand:
        """Runs the words of a POST as a command. The caller sets `may_send_result` when the POST
        has its response."""
        command = self._command(connection, text, language, asr_ms)
        self._queue(command.device_id).recent.append(command)
        self._enqueue(connection, command)
        return command

    def endpoint(self, connection: WillowConnection, text: str, language: str) -> None:
        """Runs words that came over the socket, unless they are those of an earlier POST."""
        if not text:
            return  # a wake word without words after it: the user expects no answer
        queue, now = self._queue(connection.device.id), self._clock.now()
        for command in queue.recent:
            is_fresh = now <= command.recognised_at_s + REPEAT_TIMEOUT_S
            if is_fresh and not command.is_repeated and command.is_same(text):
                command.is_repeated = True
                command.may_send_result.set()
                return
        command = self._command(connection, text, language)
        command.may_send_result.set()
        self._enqueue(connection, command)

    def forget(self, device_id: str) -> None:
        """Drops the commands of a device that is no longer known."""
        queue = self._queues.get(device_id)
        if queue is not None and not queue.is_busy:
            del self._queues[device_id]

    def _command(
        self, connection: WillowConnection, text: str, language: str, asr_ms: float = 0.0
    ) -> DeviceCommand:
        return DeviceCommand(connection.device.id, text, language, self._clock.now(), asr_ms)

    def _queue(self, device_id: str) -> _CommandQueue:
        return self._queues.setdefault(device_id, _CommandQueue())

    def _enqueue(self, connection: WillowConnection, command: DeviceCommand) -> None:
        queue = self._queue(command.device_id)
        if self._tasks is None or len(queue.waiting) >= MAX_WAITING:
            connection.send(EndpointResult(ok=False, speech=""))
            return
        queue.waiting.append(command)
        if not queue.is_busy:
            queue.is_busy = True
            self._tasks.create_task(self._run_queue(queue), name="willow-command")

    async def _run_queue(self, queue: _CommandQueue) -> None:
        try:
            while queue.waiting:
                await self._run_command(queue.waiting.popleft())
        finally:
            queue.is_busy = False

    async def _run_command(self, command: DeviceCommand) -> None:
        connection = self._connected_devices.find(command.device_id)
        # the device is gone before its turn; it may send the words once more
        if connection is None:
            command.is_repeated = True
            return
        connection.set_activity("thinking")
        await self._guard(self._answer(connection, command), "willow command")
        answered_at = self._clock.now()
        try:
            async with asyncio.timeout(REPEAT_TIMEOUT_S):
                await command.may_send_result.wait()
        except TimeoutError:
            logger.info("%s did not fetch the answer to its POST", command.device_id)
        # It may have come back over another socket meanwhile, for instance after a restart.
        connection = self._connected_devices.find(command.device_id)
        if connection is not None:
            connection.send(command.result)
            connection.set_activity("idle")
            answer_ms = command.asr_ms + 1000 * (answered_at - command.recognised_at_s)
            connection.note_turn({"asr_final": command.asr_ms, "gate_open": answer_ms})

    async def _answer(self, connection: WillowConnection, command: DeviceCommand) -> None:
        """Makes the answer. Never raises an EarshotError: the device then gets a result with
        ok=False."""
        device = connection.device
        conversation = self._one_shot_responses.conversation(device.id)
        conversation.profile = ConversationProfile.of(
            device.profile.apply_to(self._default_settings())
        )
        question = OneShotRequest(
            command.text,
            conversation_id=device.id,
            language=device.profile.language or command.language or None,
            place=DeviceLocation(device.area, device.id),
            is_spoken=True,
        )
        language = question.language or self._default_settings().language or ""
        try:
            async with self._one_shot_responses.open(question) as exchange:
                language = exchange.plan.language
                command.result = EndpointResult(ok=True, speech=await exchange.text())
        except EarshotError as error:
            logger.warning("! willow: no answer for %s: %s (%s)", device.id, error, error.code)
            connection.note_error(error.code)
            command.result = EndpointResult(
                ok=False, speech=Fillers().apology(error, language) or ""
            )


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()
