"""Connection of a board that waits until a person types its code.

Stock firmware does not connect before its approval. The client xiaozhi-sdk does, and takes a
refusal for a broken server. So it gets a hello and the code. Its connection is closed when the code
was typed, after which it connects again.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from aiohttp import WSCloseCode, WSMsgType
from aiohttp import web as aioweb

from core.conversation.ids import new_id
from core.errors import OverloadedError
from devices.fleet.directory import Device, DeviceDirectory
from firmware_protocol.xiaozhi.errors import BadMessage
from firmware_protocol.xiaozhi.json_codec import decode_device_message, encode_message
from firmware_protocol.xiaozhi.messages import AlertMessage, AudioParams, DeviceHello, ServerHello

WAIT_S = 120.0
"""Longest wait for approval. Clients ask for half a minute; a person finds the page within two
minutes."""

MAX_WAITING = 16
"Limit of connections that wait: nobody sets up more boards at once."

MAX_MESSAGES = 1000
"Limit of messages before the approval. Audio counts too, 17 packets per second."

RETRY_AFTER_S = 10


class PendingActivations:
    """Boards that are connected and wait for their approval."""

    def __init__(self, directory: DeviceDirectory) -> None:
        self._directory = directory
        self._waiting = 0

    async def serve(
        self, ws: aioweb.WebSocketResponse, request: aioweb.Request, device: Device
    ) -> None:
        """Keeps the connection until the device is approved, leaves, or WAIT_S have passed.

        Raises OverloadedError too_many_waiting before the upgrade.
        """
        with self._waiting_device():
            await ws.prepare(request)
            with suppress(TimeoutError):
                async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as tasks:
                    reading = tasks.create_task(_read(ws, device.pairing_code))
                    approval = tasks.create_task(self._wait_for_decision(device))
                    both = {reading, approval}
                    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                    for task in both:
                        task.cancel()
            await ws.close(code=WSCloseCode.OK, message=b"activation")

    @contextmanager
    def _waiting_device(self) -> Iterator[None]:
        """Counts a waiting device while the `with` block runs. Raises OverloadedError."""
        if self._waiting >= MAX_WAITING:
            raise OverloadedError(
                f"{MAX_WAITING} devices are connected and wait for approval, the limit",
                retry_after_s=RETRY_AFTER_S,
                code="too_many_waiting",
            )
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    async def _wait_for_decision(self, device: Device) -> None:
        """Returns when the device no longer waits: it was approved, blocked or forgotten."""
        while True:
            changed = self._directory.changed()
            found = await self._directory.find(device.kind, device.hardware_id, device.identity)
            if found is None or found.standing != "new":
                return
            await changed.wait()


async def _read(ws: aioweb.WebSocketResponse, code: str) -> None:
    """Answers hello with the code; other messages get no answer."""
    messages_left = MAX_MESSAGES
    async for message in ws:
        messages_left -= 1
        if messages_left == 0 or message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
            return
        if message.type is WSMsgType.BINARY:
            continue
        with suppress(BadMessage):  # some firmware does not escape its texts
            if isinstance(decode_device_message(message.data), DeviceHello):
                hello = ServerHello("websocket", new_id("sess"), AudioParams())
                await ws.send_str(encode_message(hello))
                await ws.send_str(encode_message(AlertMessage("Activation", code, "neutral")))
