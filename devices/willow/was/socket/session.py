"""One socket of `/ws` from hello to its end.

A device that is not approved is kept waiting: it gets no configuration and no service. When it is
approved, it is served at once.
"""

import asyncio
import logging
from contextlib import ExitStack
from functools import partial
from typing import Literal

from aiohttp import WebSocketError, WSCloseCode, WSMsgType
from aiohttp import web as aioweb

from core.errors import (
    Conflict,
    Forbidden,
    NotFound,
    PayloadTooLarge,
    RemoteProtocolError,
    RequestError,
)
from devices.fleet.directory import Device, DeviceClaims
from devices.willow.was.device_config import effective_config
from devices.willow.was.socket.connection import SocketOrigin, WillowConnection
from devices.willow.was.socket.notifications import NotificationQueue
from devices.willow.was.socket.services import RefusalLog, WasServices
from firmware_protocol.willow.decode import decode
from firmware_protocol.willow.encode import encode
from firmware_protocol.willow.messages import (
    ConfigMessage,
    Endpoint,
    FromDevice,
    GetConfig,
    Goodbye,
    Hello,
    NotifyDone,
    UnknownMessage,
    WakeEnd,
    WakeStart,
)

logger = logging.getLogger(__name__)

HELLO_TIMEOUT_S = 15.0
"Longest wait for hello; the firmware sends it as soon as it is connected."

SEND_TIMEOUT_S = 10.0
"Longest wait for a device to take a message."

ConfigPushReason = Literal["changed", "asked", "ordered"]
"""Reason for sending a configuration. changed: the device was approved or its settings changed.
asked: the device wants it. ordered: a person wants it, through the page or the API."""

CONFIG_REPEAT_S = 5.0
"""A request for the configuration within this time after it was sent is ignored. The firmware asks
right after hello, and each configuration makes it reboot."""


def _is_too_big(error: object) -> bool:
    return isinstance(error, WebSocketError) and error.code == WSCloseCode.MESSAGE_TOO_BIG


class DeviceSession:
    """Serves one socket of a device."""

    def __init__(
        self,
        ws: aioweb.WebSocketResponse,
        origin: SocketOrigin,
        services: WasServices,
        refusal_log: RefusalLog,
    ) -> None:
        self._ws, self._origin, self._services, self._refusal_log = (
            ws,
            origin,
            services,
            refusal_log,
        )
        self._connection: WillowConnection | None = None
        "The approved device; None while it is not approved."
        self._hello: Hello | None = None
        self._approval_known = asyncio.Event()
        "Set when it is known whether the device is approved."
        self._wants_config = False
        "The device asked for its configuration while it waited."
        self._configured_at: float | None = None
        "Time at which the last configuration was sent."
        self._config_lock = asyncio.Lock()

    async def run(self) -> None:
        """Serves the socket until either side closes it. Raises EarshotError, which says why it
        ends."""
        self._hello = hello = await self._receive_hello()
        async with asyncio.TaskGroup() as tasks:
            standing = tasks.create_task(
                self._follow_approval(hello, tasks), name="willow-standing"
            )
            await self._read()
            standing.cancel()

    async def _receive_hello(self) -> Hello:
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                message = await self._receive()
        except TimeoutError:
            raise RemoteProtocolError(f"no hello within {HELLO_TIMEOUT_S:g} s") from None
        if not isinstance(message, Hello):
            raise RemoteProtocolError("the first message must be hello")
        return message

    async def _read(self) -> None:
        await self._approval_known.wait()  # messages right after hello must not be lost
        while (message := await self._receive()) is not None:
            await asyncio.sleep(0)  # thousands may be queued: other tasks run between them
            if isinstance(message, Goodbye):
                return
            if self._connection is not None:
                await self._handle(self._connection, message)
            elif isinstance(message, GetConfig):
                self._wants_config = True

    async def _receive(self) -> FromDevice | None:
        """Returns the next message; None: the device hung up.

        Raises RemoteProtocolError, and PayloadTooLarge after aiohttp closed the socket with 1009.
        """
        message = await self._ws.receive()
        match message.type:
            case WSMsgType.TEXT:
                return decode(message.data)
            case WSMsgType.BINARY:
                raise RemoteProtocolError("a message is a text frame; this one is binary")
            case WSMsgType.ERROR if _is_too_big(message.data):
                raise PayloadTooLarge("the message is longer than any message of Willow")
            case WSMsgType.ERROR:
                raise RemoteProtocolError("the frame cannot be decoded")
            case _:
                return None

    async def _handle(self, connection: WillowConnection, message: FromDevice) -> None:
        match message:
            case WakeStart(volume_db):
                self._services.wake_words.wake_started(connection, volume_db)
            case WakeEnd():
                self._services.wake_words.wake_ended(connection)
            case Endpoint(text, language):
                self._services.commands.endpoint(connection, text, language)
            case GetConfig():
                await self._configure(connection, "asked")
            case NotifyDone(number):
                self._notification_done(connection, number)
            case Hello():
                if message.mac != connection.device.hardware_id:
                    raise RemoteProtocolError("a second hello that names another device")
            case UnknownMessage(names):
                self._services.metrics.count("earshot_willow_unknown_messages")
                logger.debug("< %s: unknown: %s", connection.device.id, ", ".join(names))
            case Goodbye():
                pass  # this message ends the reading

    def _notification_done(self, connection: WillowConnection, number: int) -> None:
        """Handles a notification that was played or dismissed on one device: it is cancelled on the
        others."""
        if connection.notifications.done(number):
            for other in self._services.connected_devices.all():
                if other is not connection:
                    other.notifications.cancel(number, other.send)

    async def _follow_approval(self, hello: Hello, tasks: asyncio.TaskGroup) -> None:
        """Follows the approval state of the device. Raises Forbidden, NotFound, Conflict."""
        directory = self._services.directory
        with ExitStack() as stack:
            changed = directory.changed()
            device: Device | None = await directory.check_in(self._claims(hello))
            while True:
                if device is None:
                    self._stop_serving()
                    self._forget()
                    raise NotFound(f"{hello.hostname} was forgotten", code="device_forgotten")
                await self._apply_approval(device, hello, stack, tasks)
                self._approval_known.set()
                await changed.wait()
                changed = directory.changed()
                device = await directory.find("willow", hello.mac)

    async def _apply_approval(
        self, device: Device, hello: Hello, stack: ExitStack, tasks: asyncio.TaskGroup
    ) -> None:
        connection = self._connection
        if device.standing != "approved":
            self._log_refusal(device)
            if connection is not None:
                self._stop_serving()
                raise Forbidden(f"{device.id} is {device.standing}", code="device_not_approved")
            # kept open: a refused device would come back every few seconds, a waiting one costs a
            # socket
            return
        if connection is None:
            connection = await self._connect(device, hello, stack, tasks)
            await self._configure(connection, "asked" if self._wants_config else "changed")
            return
        if device.area != connection.device.area:
            self._services.wake_words.device_moves(connection)
        has_new_profile = device.profile != connection.device.profile
        connection.device = device
        if has_new_profile:
            await self._configure(connection, "changed")

    async def _connect(
        self, device: Device, hello: Hello, stack: ExitStack, tasks: asyncio.TaskGroup
    ) -> WillowConnection:
        services = self._services
        connection = WillowConnection(
            device,
            hello.hostname,
            self._origin,
            services.presence,
            NotificationQueue(services.notification_ids),
            services.audio_urls,
            services.update,
            partial(self._configure, reason="ordered"),
        )
        former = stack.enter_context(services.presence.connected(device.id, connection))
        if former is not None:
            await former.close()
        stack.enter_context(services.wake_words.connected(connection))
        stack.enter_context(services.connected_devices.connected(connection))
        conversation = services.one_shot_responses.conversation(device.id)
        conversation.sessions.append(connection)
        stack.callback(conversation.remove_session, connection)
        self._connection = connection
        for work in (self._write(connection), self._wait_for_close(connection)):
            task = tasks.create_task(work, name="willow-socket")
            stack.callback(task.cancel)
        playing = tasks.create_task(
            connection.notifications.run(connection.send), name="willow-notices"
        )
        stack.callback(playing.cancel)
        logger.info("%s (%s) connected from %s", device.id, hello.hw_type, self._origin.address)
        return connection

    async def _configure(self, connection: WillowConnection, reason: ConfigPushReason) -> None:
        """Sends the device its configuration, which makes it reboot.

        It is sent if it differs from the last one, if the device asks for it, or if a person
        ordered it. A configuration that is too large raises PayloadTooLarge only if it was ordered;
        otherwise the device keeps the one that it has.
        """
        async with self._config_lock:
            services, device = self._services, connection.device
            everywhere = await services.store.config()
            own = await services.store.config(device.id)
            base, with_secrets = self._origin.base_url, services.sends_secrets
            values = effective_config(device, everywhere, own, base, with_secrets=with_secrets)
            is_new = connection.config != values
            connection.config = values
            now = services.clock.now()
            is_old = self._configured_at is None or now > self._configured_at + CONFIG_REPEAT_S
            if reason == "changed":
                is_due = is_new and not await services.store.was_pushed(values, device.id)
            else:
                is_due = reason == "ordered" or is_new or is_old
            if not is_due:
                return
            message = ConfigMessage(values)
            try:
                encode(message)
            except PayloadTooLarge as error:  # checked before it is recorded as sent
                if reason == "ordered":
                    raise
                connection.note_error(error.code)
                logger.warning(
                    "! willow: the new configuration is not sent to %s: %s", device.id, error
                )
                return
            connection.send(message)
            self._configured_at = now
            await services.store.note_pushed(values, device.id)

    async def _write(self, connection: WillowConnection) -> None:
        async for message in connection.outbox:
            try:
                text = encode(message)
            except PayloadTooLarge as error:
                logger.warning(
                    "! willow: a message is not sent to %s: %s", connection.device.id, error
                )
                connection.note_error(error.code)
                continue
            try:
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await self._ws.send_str(text)
            except ConnectionError:
                return
            except TimeoutError:
                raise RequestError(
                    "the device does not read its messages", code="download_stalled"
                ) from None

    async def _wait_for_close(self, connection: WillowConnection) -> None:
        await connection.close_requested.wait()
        raise Conflict(
            f"another socket of {connection.device.id} connected, or this one was asked to close",
            code="connection_replaced",
        )

    def _claims(self, hello: Hello) -> DeviceClaims:
        return DeviceClaims(
            kind="willow",
            hardware_id=hello.mac,
            address=self._origin.address,
            name=hello.hostname,
            board=hello.hw_type,
            firmware=self._origin.firmware,
        )

    def _stop_serving(self) -> None:
        if self._connection is not None:
            self._connection.is_served = False

    def _forget(self) -> None:
        if self._connection is not None:
            self._services.wake_words.forget(self._connection.device.id)
            self._services.commands.forget(self._connection.device.id)

    def _log_refusal(self, device: Device) -> None:
        if self._refusal_log.is_new(device.hardware_id, device.standing):
            logger.warning(
                "! willow: %s (%s, %s) is %s; it is not served until it is approved",
                device.name,
                device.id,
                device.hardware_id,
                device.standing,
            )
