"""What devices can do themselves (their volume, their display), offered where they hear."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

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
"Calls run between a device's other work; a person waits no longer either."

LIST_TIMEOUT_S = 10.0

SEEING = re.compile(
    r"camera|photo|picture|screenshot|snapshot|拍照|照片|图片|图像|摄像|截图|截屏", re.IGNORECASE
)
"""Words of tools that look at something, in names or descriptions. Their pictures would go where
`vision` says, and a model that cannot see would promise what it cannot do."""
SEEING_SCREEN = re.compile(
    r"\b(?:see|look|capture|read|view|analy[sz]e)\w*\b[^.]*\bscreen", re.IGNORECASE
)
"A screen also has a brightness and a theme: only tools that look at one are left out."

READ_ONLY = frozenset({"self.get_device_status"})

SET_VOLUME = "self.audio_speaker.set_volume"

UPDATE = "self.upgrade_firmware"
"For people, so it is not listed; it is called for one who asked for it on the page."

_NO_TOOLS: Sequence[ToolSpec] = ()


class DeviceUnavailable(EarshotError):
    code = "device_gone"


class ConnectionTools:
    """One connection's. `run` asks for them; a device without any is none the worse."""

    def __init__(self, send: Callable[[Json], Awaitable[None]], version: str) -> None:
        """`send` takes a JSON-RPC request."""
        self.specs: Sequence[ToolSpec] = _NO_TOOLS
        self._send = send
        self._client = DeviceMcpClient(("earshot", version))
        self._tools: Mapping[str, DeviceTool] = {}
        "By alias."
        self._calls: dict[int, asyncio.Future[DeviceCallToolResult]] = {}
        self._listing: (
            asyncio.Future[DeviceInitializeResult | DeviceListToolsResult | DeviceMcpError] | None
        ) = None
        self._one_at_a_time = asyncio.Lock()

    async def run(self, volume: int | None) -> None:
        """Find out what there is; then set the loudspeaker, if its `volume` is chosen."""
        try:
            async with asyncio.timeout(LIST_TIMEOUT_S):
                await self._list()
        except TimeoutError:
            logger.info("a xiaozhi device does not say which tools it has")
        known = {tool.name for tool in self._tools.values()}
        if volume is None or SET_VOLUME not in known:
            return
        try:
            called = await self._called(SET_VOLUME, {"volume": volume})
        except EngineTimeout as error:
            logger.info("a xiaozhi device did not take its volume: %s", error)
        else:
            if called.is_error:
                logger.info("a xiaozhi device refused its volume: %s", called.text)

    def receive(self, payload: Mapping[str, Any]) -> None:
        """What the device answers."""
        match self._client.receive(payload):
            case DeviceCallToolResult() as called:
                waiting = self._calls.pop(called.id, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(called)
            case DeviceInitializeResult() | DeviceListToolsResult() | DeviceMcpError() as told:
                if self._listing is not None and not self._listing.done():
                    self._listing.set_result(told)
            case None:
                logger.debug("< mcp: an answer to nothing that was asked")

    async def call(self, alias: str, arguments: Mapping[str, Any]) -> ToolOutcome:
        """Raises EngineTimeout, DeviceGone."""
        tool = self._tools.get(alias)
        if tool is None:
            return ToolOutcome({"message": f"the device has no {alias}"}, error="no_such_tool")
        called = await self._called(tool.name, arguments)
        if called.is_error:
            return ToolOutcome({"message": called.text}, error="device_tool_failed")
        return ToolOutcome({"result": called.text})

    async def update(self, url: str) -> bool:
        """Have it fetch its firmware there. False: it does not do that."""
        if not self._tools:
            return False
        try:
            called = await self._called(UPDATE, {"url": url})
        except EngineTimeout:
            return False
        return not called.is_error

    async def _called(self, name: str, arguments: Mapping[str, Any]) -> DeviceCallToolResult:
        async with self._one_at_a_time:
            return await self._call(name, arguments)

    async def _call(self, name: str, arguments: Mapping[str, Any]) -> DeviceCallToolResult:
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
        told = await self._ask(self._client.initialize())
        cursor: str | None = "" if isinstance(told, DeviceInitializeResult) else None
        tools: Sequence[DeviceTool] = ()
        while cursor is not None:
            told = await self._ask(self._client.list_tools(cursor))
            if not isinstance(told, DeviceListToolsResult):
                break
            tools, cursor = told.tools, told.cursor or None
        if isinstance(told, DeviceMcpError):
            logger.info("a xiaozhi device refuses %s: %s", told.method, told.message)
        usable = [tool for tool in tools if not _needs_eyes(tool)]
        self._tools = {tool.alias: tool for tool in usable}
        self.specs = tuple(_spec(tool) for tool in usable)

    async def _ask(
        self, request: Json
    ) -> DeviceInitializeResult | DeviceListToolsResult | DeviceMcpError:
        self._listing = asyncio.get_running_loop().create_future()
        await self._send(request)
        return await self._listing


class DeviceToolProvider:
    """Every connected device's, as a `ToolProvider`: a session is offered those of the device that
    it hears with."""

    def __init__(self) -> None:
        self._here: dict[str, ConnectionTools] = {}

    @contextmanager
    def of(self, device_id: str, tools: ConnectionTools) -> Iterator[None]:
        """While the body runs; of two connections of one device the newer counts."""
        self._here[device_id] = tools
        try:
            yield
        finally:
            if self._here.get(device_id) is tools:
                del self._here[device_id]

    def tools(self, context: ToolContext) -> Sequence[ToolSpec]:
        found = self._here.get(context.place.device_id)
        return _NO_TOOLS if found is None else found.specs

    async def call(
        self, name: str, arguments: Mapping[str, Any], context: ToolContext
    ) -> ToolOutcome:
        """Raises EngineTimeout, DeviceGone."""
        found = self._here.get(context.place.device_id)
        if found is None:
            raise DeviceUnavailable("the device is not connected any more")
        return await found.call(name, arguments)


def _needs_eyes(tool: DeviceTool) -> bool:
    """Whether a tool is for a model that looks at pictures."""
    about = f"{tool.name} {tool.description}"
    return bool(SEEING.search(about) or SEEING_SCREEN.search(about))


def _spec(tool: DeviceTool) -> ToolSpec:
    return ToolSpec(
        tool.alias,
        tool.description,
        tool.parameters,
        is_read_only=tool.name in READ_ONLY,
        timeout_s=CALL_TIMEOUT_S + 1,  # its own comes first, and frees the device for the next
        fallback_name=f"device_{tool.alias}"[:64],
    )
