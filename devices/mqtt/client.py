"""Keeps Home Assistant's view of the devices up to date over a broker, and carries out commands.

One task owns the connection: it connects, publishes what has changed, reads commands, and connects
again when the broker is lost.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field, replace
from typing import Protocol, assert_never

from core.access.limits import CapacityLimit, RequestRate
from core.errors import (
    Conflict,
    EarshotError,
    NotFound,
    OverloadedError,
    StorageError,
    first_error,
)
from core.ports import Clock, Metrics
from core.tasks import Backoff
from devices.api.door import KINDS_WITHOUT_SPEECH
from devices.fleet.directory import Device
from devices.fleet.presence import (
    AdjustableDevice,
    DeviceNotification,
    Presence,
    StartableDevice,
    StoppableDevice,
)
from devices.mqtt.commands import (
    MAX_COMMANDS_PER_MINUTE,
    MAX_RUNNING,
    Announce,
    Command,
    SetVolume,
    StartConversation,
    Stop,
    decode_command,
)
from devices.mqtt.discovery import ABILITIES, Abilities
from devices.mqtt.last_turns import LastTurns
from devices.mqtt.message_queue import OutgoingMessage, OutgoingMessages
from devices.mqtt.settings import MqttSettings
from devices.mqtt.state import (
    OFFLINE,
    ONLINE,
    DeviceState,
    PersonState,
    Snapshot,
    error_message,
    retained_messages,
    words_message,
)
from devices.mqtt.topics import Topics
from devices.notices.announcements import Announcements, wait_for_any
from devices.registry.registry import DeviceRegistry, is_in
from devices.registry.speakers import EnrolledSpeakers
from pipeline.session.sessions import Sessions

logger = logging.getLogger(__name__)

FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
"Wait before the second attempt to connect, and the longest wait. It doubles in between."

LASTED_S = 10.0
"A connection that lasted this long counts as good: the next attempt comes after the first wait."

SETTLE_S = 0.1
"Wait after a change. Changes come in bursts, and only the state after the burst is published."

REFRESH_S = 60.0
"Interval at which the state is compared without a change: a person may have been deleted."

DATABASE_RETRY_S = 5.0
"Wait after the database failed. Until then the former state stays published."

FAREWELL_S = 1.0
"Limit for the last message at shutdown. Without it the broker sends our will a little later."


class BrokerError(EarshotError):
    """The broker cannot be reached, or the connection was lost."""

    code = "mqtt_unreachable"
    retryable = True


class BrokerRefused(BrokerError):
    """The broker does not accept user, password, certificate or client."""

    code = "mqtt_refused"


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message from the broker."""

    topic: str
    payload: bytes = field(repr=False)
    is_retained: bool
    "True if it was published before we subscribed."


class BrokerConnection(Protocol):
    """A connection to the broker. Each call raises BrokerError when it is lost."""

    async def publish(self, message: OutgoingMessage) -> None:
        """Returns when the broker has the message."""
        ...

    async def subscribe(self, topics: Sequence[str], *, with_retained: bool) -> None:
        """Subscribes. `with_retained`: the broker sends what it holds of these topics."""
        ...

    def messages(self) -> AsyncIterator[ReceivedMessage]:
        """Yields messages of the subscriptions."""
        ...


Connect = Callable[[MqttSettings, OutgoingMessage], AbstractAsyncContextManager[BrokerConnection]]
"Opens a connection with a will. Raises BrokerError."


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttSources:
    """Parts of the server that are shown or get commands."""

    registry: DeviceRegistry
    presence: Presence
    announcements: Announcements
    sessions: Sessions
    people: EnrolledSpeakers
    last_turns: LastTurns
    version: str
    "Version of this server."
    check_notice: Callable[[DeviceNotification], None]
    "Raises RequestError for a voice or a language that the server does not have."


class MqttClient:
    """The MQTT client of a server. `run` is its task."""

    def __init__(
        self,
        settings: MqttSettings,
        sources: MqttSources,
        connect: Connect,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._settings, self._sources, self._connect = settings, sources, connect
        self._clock, self._metrics = clock, metrics
        self._topics = Topics(settings.base_topic, settings.node, settings.discovery_prefix)
        self._outgoing = OutgoingMessages()
        self._backoff = Backoff.doubling(FIRST_WAIT_S, LONGEST_WAIT_S, LASTED_S)
        self._rate = RequestRate(MAX_COMMANDS_PER_MINUTE)
        self._running = CapacityLimit(
            MAX_RUNNING, "{limit} commands are running", retry_after_s=1, code="too_many_commands"
        )
        self._is_flooded = False
        "True while commands are refused for their number, so that one line is logged for all."
        self._devices: Sequence[Device] | None = None
        "The approved devices; None: not known yet."
        self._registry_changed = asyncio.Event()
        self._registry_changed.set()
        self._asked_again = asyncio.Event()
        "Set when something must be published although no device changed."
        self._lost_reason = ""
        "Why there is no connection, as it was logged."

    async def run(self) -> None:
        """Keeps the connection until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                began_s = self._clock.now()
                try:
                    await self._run_connection(tasks)
                except* BrokerError as errors:
                    self._note_lost(first_error(errors))
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise asyncio.CancelledError  # a TaskGroup that ends with errors forgets it
                await asyncio.sleep(self._backoff.fail(self._clock.now() - began_s))

    # The connection.

    async def _run_connection(self, commands: asyncio.TaskGroup) -> None:
        """Runs one connection to its end. `commands`: owns the commands, which outlive it. Raises
        BrokerError, possibly in an ExceptionGroup."""
        will = OutgoingMessage(self._topics.availability, OFFLINE, is_retained=True)
        async with self._connect(self._settings, will) as connection:
            self._outgoing.begin()
            self._outgoing.drop_passing()
            await connection.subscribe(self._topics.subscriptions(), with_retained=False)
            await connection.subscribe(self._topics.kept_states(), with_retained=True)
            self._note_connected()
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._publish(connection), name="mqtt-publish")
                    await self._receive(connection, commands)
            finally:
                self._metrics.gauge("earshot_mqtt_connected", 0)
                # The broker sends no will for a client that leaves properly.
                with suppress(BrokerError, TimeoutError):
                    async with asyncio.timeout(FAREWELL_S):
                        await connection.publish(will)

    def _note_connected(self) -> None:
        settings = self._settings
        logger.info("= mqtt: connected to %s:%d", settings.host, settings.port)
        self._metrics.gauge("earshot_mqtt_connected", 1)
        self._lost_reason = ""

    def _note_lost(self, error: BaseException) -> None:
        """Logs the reason, once for all attempts that fail with the same."""
        reason = str(error)
        level = logging.DEBUG if reason == self._lost_reason else logging.WARNING
        self._lost_reason = reason
        advice = (
            " (check mqtt.username, mqtt.password and the broker's access rules)"
            if isinstance(error, BrokerRefused)
            else ""
        )
        settings = self._settings
        logger.log(
            level,
            "! mqtt: no connection to %s:%d: %s%s",
            settings.host,
            settings.port,
            reason,
            advice,
        )

    # State.

    async def _publish(self, connection: BrokerConnection) -> None:
        sources = self._sources
        while True:
            self._asked_again.clear()
            changes = (
                sources.presence.changed(),
                sources.announcements.changed(),
                sources.sessions.changed(),
                sources.last_turns.changed(),
            )
            wait_s = REFRESH_S
            try:
                await self._read_devices()
            except StorageError:  # the database has logged it
                wait_s = DATABASE_RETRY_S
            if self._devices is not None:
                self._want(self._devices)
                await self._send_all(connection)
            await wait_for_any(
                *changes, self._registry_changed, self._asked_again, timeout_s=wait_s
            )
            await asyncio.sleep(SETTLE_S)

    async def _read_devices(self) -> None:
        """Reads the devices if any has changed. Raises StorageError."""
        if not self._registry_changed.is_set():
            return
        changed = self._sources.registry.changed()
        known = await self._sources.registry.all_devices()
        self._devices = [device for device in known if device.standing == "approved"]
        self._registry_changed = changed

    def _want(self, devices: Sequence[Device]) -> None:
        """Queues the present state, and words that are new."""
        last_turns = self._sources.last_turns
        has_words = self._settings.publishes_words
        snapshot = self._snapshot(devices)
        last_turns.forget_devices(frozenset(device.id for device in devices))
        last_turns.forget_people(frozenset(person.id for person in snapshot.people))
        self._outgoing.want(retained_messages(snapshot, self._topics, has_words=has_words))
        for device_id, words in last_turns.take_words().items():
            message = words_message(words.heard, words.said, words.person)
            self._outgoing.pass_on(self._topics.words(device_id), message)

    def _snapshot(self, devices: Sequence[Device]) -> Snapshot:
        sources = self._sources
        waiting = sources.announcements.waiting_by_device()
        return Snapshot(
            version=sources.version,
            sessions=sources.sessions.count,
            latency_ms=sources.last_turns.latency_ms,
            devices=[self._state_of(device, waiting.get(device.id, 0)) for device in devices],
            people=self._people(devices) if self._settings.publishes_people else (),
        )

    def _state_of(self, device: Device, waiting: int) -> DeviceState:
        live = self._sources.presence.find(device.id)
        if live is None:
            return DeviceState(device=device, waiting=waiting)
        timing = live.timing or {}
        latency_ms = timing.get("playout_start", timing.get("gate_open"))
        return DeviceState(
            device=device, activity=live.activity, latency_ms=latency_ms, waiting=waiting
        )

    def _people(self, devices: Sequence[Device]) -> Sequence[PersonState]:
        names = {device.id: device.name for device in devices}
        heard = self._sources.last_turns.people
        states = []
        for person in self._sources.people.list_all():
            last = heard.get(person.id)
            states.append(
                PersonState(
                    id=person.id,
                    name=person.name,
                    heard=last.at if last else None,
                    device_name=names.get(last.place.device_id, "") if last else "",
                    area=last.place.area if last else "",
                )
            )
        return states

    async def _send_all(self, connection: BrokerConnection) -> None:
        while (message := self._outgoing.next()) is not None:
            await connection.publish(message)
            self._outgoing.confirm(message)

    # Commands.

    async def _receive(self, connection: BrokerConnection, commands: asyncio.TaskGroup) -> None:
        async for message in connection.messages():
            if message.topic == self._topics.birth:
                # Home Assistant has started. It may have lost what is not retained.
                if message.payload == ONLINE and not message.is_retained:
                    self._outgoing.begin()
                    self._asked_again.set()
            elif (owner := self._topics.owner_of_state(message.topic)) is not None:
                if message.is_retained:
                    self._outgoing.note_held(message.topic)
                    self._outgoing.note_held(self._topics.config(owner[1]))
                    self._asked_again.set()
            elif not message.is_retained:  # an old command would come with each connection
                self._accept(message, commands)

    def _accept(self, message: ReceivedMessage, commands: asyncio.TaskGroup) -> None:
        """Begins to carry out a command."""
        topic = self._topics.parse_command(message.topic)
        if topic is None:
            return
        try:
            self._admit()
            command = decode_command(topic, message.payload)
        except EarshotError as error:
            self._refuse(message.topic, error)
        else:
            commands.create_task(self._carry_out(command, message.topic), name="mqtt-command")

    def _admit(self) -> None:
        """Raises OverloadedError if too many commands come."""
        wait_s = self._rate.take(self._clock.now())
        if wait_s:
            raise OverloadedError(
                f"at most {MAX_COMMANDS_PER_MINUTE} commands a minute",
                retry_after_s=round(wait_s) + 1,
                code="too_many_commands",
            )
        self._running.check()
        self._is_flooded = False

    async def _carry_out(self, command: Command, topic: str) -> None:
        try:
            with self._running.take():
                await self._run_command(command)
        except EarshotError as error:
            self._refuse(topic, error)
        else:
            self._metrics.count("earshot_mqtt_commands", outcome="done")

    def _refuse(self, topic: str, error: EarshotError) -> None:
        """Reports a command that was refused or failed: in the log, and in the topic of errors."""
        self._metrics.count("earshot_mqtt_commands", outcome=error.code)
        is_flood = isinstance(error, OverloadedError)
        level = logging.DEBUG if is_flood and self._is_flooded else logging.WARNING
        self._is_flooded |= is_flood
        logger.log(level, "! mqtt: %s: %s (%s)", topic, error, error.code)
        message = error_message(topic, error.code, str(error))
        self._outgoing.pass_on(self._topics.errors, message)
        self._asked_again.set()

    async def _run_command(self, command: Command) -> None:
        """Raises NotFound, Conflict, or what the device raises."""
        match command:
            case Announce(device_id=device_id, notice=notice) if device_id:
                await self._announce(self._device(device_id), notice)
            case Announce(area=area, notice=notice):
                await self._announce_in(area, notice)
            case StartConversation(device_id=device_id, notice=notice):
                await self._start_conversation(self._device(device_id), notice)
            case Stop(device_id=device_id):
                device = self._device(device_id)
                live = self._sources.presence.find(device.id)
                if live is None:
                    raise Conflict(f"{device.name} is not connected now", code="device_away")
                if not isinstance(live, StoppableDevice):
                    raise Conflict(f"{device.name} cannot be stopped", code="not_supported")
                await live.stop()
            case SetVolume(device_id=device_id, volume=volume):
                device = self._device(device_id)
                await self._sources.registry.edit(
                    device.id, profile=lambda profile: replace(profile, volume=volume)
                )
                await self._set_volume(device.id, volume)
            case _:
                assert_never(command)

    async def _set_volume(self, device_id: str, volume: int) -> None:
        live: object = self._sources.presence.find(device_id)
        if isinstance(live, AdjustableDevice):
            await live.set_volume(volume)

    async def _announce(self, device: Device, notice: DeviceNotification) -> None:
        if device.kind in KINDS_WITHOUT_SPEECH:
            raise Conflict(f"{device.name} cannot speak announcements", code="not_supported")
        self._sources.check_notice(notice)
        await self._sources.announcements.to_device(device, notice)

    async def _start_conversation(self, device: Device, notice: DeviceNotification) -> None:
        """Raises Conflict if the device cannot be told to listen. One that is away may turn out to
        be unable later: then it only speaks."""
        live: object = self._sources.presence.find(device.id)
        is_able = isinstance(live, StartableDevice) and live.can_be_started
        if not ABILITIES.get(device.kind, Abilities()).is_startable or not (
            live is None or is_able
        ):
            message = f"{device.name} cannot be told to listen; say its wake word"
            raise Conflict(message, code="not_supported")
        await self._announce(device, notice)

    async def _announce_in(self, area: str, notice: DeviceNotification) -> None:
        """Announces in an area, or on all connected devices if `area` is empty."""
        self._sources.check_notice(notice)
        speaking = [device for device in self._known() if device.kind not in KINDS_WITHOUT_SPEECH]
        if area:
            if not any(is_in(device, area) for device in speaking):
                areas = sorted({device.area for device in speaking if device.area})
                known = ", ".join(areas) or "none"
                raise NotFound(
                    f"no speaking device is in that area; areas: {known}", code="area_not_found"
                )
            await self._sources.announcements.to_area(area, notice)
            return
        connected = [d for d in speaking if self._sources.presence.find(d.id) is not None]
        if not connected:
            raise Conflict("no device that speaks is connected", code="device_away")
        async with asyncio.TaskGroup() as tasks:
            for device in connected:
                tasks.create_task(self._sources.announcements.to_device(device, notice))

    def _device(self, device_id: str) -> Device:
        """Returns an approved device. Raises NotFound, StorageError."""
        for device in self._known():
            if device.id == device_id:
                return device
        raise NotFound("no approved device has this id", code="device_not_found")

    def _known(self) -> Sequence[Device]:
        """Returns the approved devices. Raises StorageError."""
        if self._devices is None:
            raise StorageError("the devices are not known yet")
        return self._devices
