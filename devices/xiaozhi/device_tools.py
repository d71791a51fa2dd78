"""Tools of devices (volume, display), offered to the sessions of these devices."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from core.errors import EarshotError, EngineTimeout
from core.ports import ToolContext, ToolOutcome, ToolSpec
from firmware_protocol.xiaozhi.mcp import (
    DeviceCallToolResult,
    DeviceInitializeResult,
    DeviceListToolsResult,
    DeviceMcpClient,
    DeviceMcpError,
    DeviceTool,
    Json,
)

logger = logging.getLogger(__name__)

CALL_TIMEOUT_S = 10.0
"""Limit for a call, in seconds. A device runs calls between its other work; a user would not wait
longer."""

LIST_TIMEOUT_S = 10.0

VISION_WORDS = re.compile(
    r"camera|photo|picture|screenshot|snapshot|拍照|照片|图片|图像|摄像|截图|截屏", re.IGNORECASE
)
"""Words in names or descriptions of tools that take pictures. Their pictures would go to the
device's `vision` URL, and a model that cannot see would promise what it cannot do."""
SCREEN_VISION = re.compile(
    r"\b(?:see|look|capture|read|view|analy[sz]e)\w*\b[^.]*\bscreen", re.IGNORECASE
)
"Pattern of tools that look at a screen. Tools for its brightness and theme are kept."

READ_ONLY = frozenset({"self.get_device_status"})

SET_VOLUME = "self.audio_speaker.set_volume"

UPDATE = "self.upgrade_firmware"
"""Tool that updates the firmware. It is missing in the list that a device gives to models, and is
called if a person asks for it on the page."""

_NO_TOOLS: Sequence[ToolSpec] = ()


class DeviceUnavailable(EarshotError):
    """The device has disconnected."""

    code = "device_gone"


class ConnectionTools:
    """Tools of one connection. `run` lists them; devices without tools work as well."""

    def __init__(self, send: Callable[[Json], Awaitable[None]], version: str) -> None:
        """send: sends a JSON-RPC request to the device."""
        self.specs: Sequence[ToolSpec] = _NO_TOOLS
        self._send = send
        self._client = DeviceMcpClient(("earshot", version))
        self._tools: Mapping[str, DeviceTool] = {}
        "Tools by alias."
        self._calls: dict[int, asyncio.Future[DeviceCallToolResult]] = {}
        self._listing: (
            asyncio.Future[DeviceInitializeResult | DeviceListToolsResult | DeviceMcpError] | None
        ) = None
        "Next answer of the device while its tools are listed."
        self._call_lock = asyncio.Lock()

    async def run(self, volume: int | None) -> None:
        """Lists the tools; then sets the loudspeaker's volume unless it is None."""
        try:
            async with asyncio.timeout(LIST_TIMEOUT_S):
                await self._list()
        except TimeoutError:
            logger.info("a xiaozhi device does not list its tools")
        if volume is not None:
            await self.set_volume(volume)

    async def set_volume(self, volume: int) -> None:
        """Sets the loudspeaker's volume, 0 to 100, of a device that has a tool for it."""
        if SET_VOLUME not in {tool.name for tool in self._tools.values()}:
            return
        try:
            result = await self._call_in_turn(SET_VOLUME, {"volume": volume})
        except EngineTimeout as error:
            logger.info("the volume of a xiaozhi device could not be set: %s", error)
        else:
            if result.is_error:
                logger.info("a xiaozhi device refused its volume: %s", result.text)

    def receive(self, payload: Mapping[str, object]) -> None:
        """Handles an answer of the device."""
        match self._client.receive(payload):
            case DeviceCallToolResult() as result:
                waiting = self._calls.pop(result.id, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(result)
            case DeviceInitializeResult() | DeviceListToolsResult() | DeviceMcpError() as answer:
                if self._listing is not None and not self._listing.done():
                    self._listing.set_result(answer)
            case None:
                logger.debug("< mcp: an answer without a request")

    async def call(self, alias: str, arguments: Mapping[str, object]) -> ToolOutcome:
        """Calls a tool. Raises EngineTimeout. Other failures are in the outcome."""
        tool = self._tools.get(alias)
        if tool is None:
            return ToolOutcome({"message": f"the device has no {alias}"}, error="no_such_tool")
        result = await self._call_in_turn(tool.name, arguments)
        if result.is_error:
            return ToolOutcome({"message": result.text}, error="device_tool_failed")
        return ToolOutcome({"result": result.text})

    async def update(self, url: str) -> bool:
        """Makes the device fetch firmware from `url`. Returns False if it cannot."""
        if not self._tools:
            return False
        try:
            result = await self._call_in_turn(UPDATE, {"url": url})
        except EngineTimeout:
            return False
        return not result.is_error

    async def _call_in_turn(
        self, name: str, arguments: Mapping[str, object]
    ) -> DeviceCallToolResult:
        async with self._call_lock:
            return await self._send_call(name, arguments)

    async def _send_call(self, name: str, arguments: Mapping[str, object]) -> DeviceCallToolResult:
        request_id, request = self._client.call(name, arguments)
        waiting: asyncio.Future[DeviceCallToolResult] = asyncio.get_running_loop().create_future()
        self._calls[request_id] = waiting
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                await self._send(request)
                return await waiting
        except TimeoutError:
            why = f"no answer within {CALL_TIMEOUT_S:g} s; it may still happen"
            raise EngineTimeout("tool", name, why) from None
        finally:
            self._calls.pop(request_id, None)
            self._client.forget(request_id)

    async def _list(self) -> None:
        reply = await self._ask(self._client.initialize())
        cursor: str | None = "" if isinstance(reply, DeviceInitializeResult) else None
        tools: Sequence[DeviceTool] = ()
        while cursor is not None:
            reply = await self._ask(self._client.list_tools(cursor))
            if not isinstance(reply, DeviceListToolsResult):
                break
            tools, cursor = reply.tools, reply.cursor or None
        if isinstance(reply, DeviceMcpError):
            logger.info("a xiaozhi device refused the call of %s: %s", reply.method, reply.message)
        usable = [tool for tool in tools if not _needs_vision(tool)]
        self._tools = {tool.alias: tool for tool in usable}
        self.specs = tuple(_spec(tool) for tool in usable)

    async def _ask(
        self, request: Json
    ) -> DeviceInitializeResult | DeviceListToolsResult | DeviceMcpError:
        self._listing = asyncio.get_running_loop().create_future()
        await self._send(request)
        return await self._listing


class DeviceToolProvider:
    """Tool provider for all connected devices: a session is offered the tools of its own device."""

    def __init__(self) -> None:
        self._tools_by_device: dict[str, ConnectionTools] = {}

    @contextmanager
    def offer(self, device_id: str, tools: ConnectionTools) -> Iterator[None]:
        """Offers the tools while the `with` block runs; of two connections of one device the newer
        counts."""
        self._tools_by_device[device_id] = tools
        try:
            yield
        finally:
            if self._tools_by_device.get(device_id) is tools:
                del self._tools_by_device[device_id]

    def tools(self, context: ToolContext) -> Sequence[ToolSpec]:
        found = self._tools_by_device.get(context.place.device_id)
        return _NO_TOOLS if found is None else found.specs

    async def call(
        self, name: str, arguments: Mapping[str, object], context: ToolContext
    ) -> ToolOutcome:
        """Calls a tool of the session's device. Raises EngineTimeout, DeviceUnavailable."""
        found = self._tools_by_device.get(context.place.device_id)
        if found is None:
            raise DeviceUnavailable("the device is not connected any more")
        return await found.call(name, arguments)


def _needs_vision(tool: DeviceTool) -> bool:
    """Returns True if the tool is for a model that can look at pictures."""
    about = f"{tool.name} {tool.description}"
    return bool(VISION_WORDS.search(about) or SCREEN_VISION.search(about))


def _spec(tool: DeviceTool) -> ToolSpec:
    return ToolSpec(
        tool.alias,
        tool.description,
        tool.parameters,
        is_read_only=tool.name in READ_ONLY,
        # longer than the call's own limit, which frees the device for the next call
        timeout_s=CALL_TIMEOUT_S + 1,
        fallback_name=f"device_{tool.alias}"[:64],
    )
