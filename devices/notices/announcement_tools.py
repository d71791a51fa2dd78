"""Tools that speak in rooms, for programs: say something, ask somebody a question, list the rooms.

The assistant itself does not have them: a guest who talks to it must not speak in other rooms.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta

from core.access.named_key import CALLER_KEY, KeyScope
from core.ports import ToolContext, ToolOutcome, ToolSpec
from devices.api.door import KINDS_WITHOUT_SPEECH
from devices.fleet.directory import Device
from devices.fleet.presence import AskableDevice, DeviceNotification, Presence
from devices.notices.announcements import Announcements
from devices.registry.registry import DeviceRegistry
from pipeline.tools.functions import FunctionTools, tool
from pipeline.tools.skills.arguments import ToolError

NEEDED_SCOPE: KeyScope = "manage"
"Scope that a named key needs, as for announcements over HTTP. Answers of people are private."

MAX_TEXT_CHARS = 500
"Longest announcement: half a minute of speech."

MAX_WAIT_S = 60
"Longest wait for an answer. Somebody who has not spoken by then is not there."

ASK_TIMEOUT_S = MAX_WAIT_S + 5.0
"Longest time of a whole call. It is longer, so that the answer says that nobody spoke."

_NO_TOOLS: Sequence[ToolSpec] = ()

Text = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT_CHARS)]
Room = Annotated[str, Meta(max_length=100, description="Name of the room, as list_rooms has it")]
WaitS = Annotated[
    int, Meta(ge=5, le=MAX_WAIT_S, description="Seconds to wait for the answer, all in all")
]


class AnnouncementTools:
    """A ToolProvider for callers whose key may manage devices."""

    def __init__(
        self, registry: DeviceRegistry, presence: Presence, announcements: Announcements
    ) -> None:
        self._registry, self._presence = registry, presence
        self._announcements = announcements
        self._functions = FunctionTools([self.list_rooms, self.announce_in_room, self.ask_in_room])

    def tools(self, context: ToolContext) -> Sequence[ToolSpec]:
        key = CALLER_KEY.get()
        is_allowed = key is None or NEEDED_SCOPE in key.scopes
        return self._functions.tools(context) if is_allowed else _NO_TOOLS

    async def call(
        self, name: str, arguments: Mapping[str, object], context: ToolContext
    ) -> ToolOutcome:
        return await self._functions.call(name, arguments, context)

    @tool(read_only=True)
    async def list_rooms(self) -> dict[str, Any]:
        """Lists the rooms with devices that can speak, and whether people there can be asked."""
        rooms: dict[str, bool] = {}
        for device in await self._speaking_devices():
            is_askable = isinstance(self._presence.find(device.id), AskableDevice)
            rooms[device.area] = rooms.get(device.area, False) or is_askable
        return {"rooms": [{"name": name, "can_be_asked": rooms[name]} for name in sorted(rooms)]}

    @tool()
    async def announce_in_room(self, text: Text, room: Room) -> dict[str, Any]:
        """Says something aloud in a room. If no device is connected there, it is said when one
        connects within 15 minutes."""
        await self._devices_in(room)
        notice = DeviceNotification(text=text)
        accepted = await self._announcements.to_area(room, notice)
        return {"spoken_by": len(accepted), "is_waiting": not accepted}

    @tool(timeout_s=ASK_TIMEOUT_S)
    async def ask_in_room(self, question: Text, room: Room, wait_s: WaitS = 30) -> dict[str, Any]:
        """Asks the person in a room a question aloud, and returns the words of the answer."""
        try:
            async with asyncio.timeout(wait_s):
                for device in await self._devices_in(room):
                    live: object = self._presence.find(device.id)
                    if not isinstance(live, AskableDevice):
                        continue
                    if (words := await live.ask(question)) is not None:
                        return {"answer": words, "device": device.name}
        except TimeoutError:
            message = f"nobody answered within {wait_s} s; the question may still be spoken"
            raise ToolError(message, code="no_answer") from None
        message = "no device there can be asked now; announce_in_room may work"
        raise ToolError(message, code="nobody_to_ask")

    async def _devices_in(self, room: str) -> Sequence[Device]:
        """Returns the devices of a room that speak. Raises ToolError if there is none."""
        wanted = room.strip().casefold()
        devices = await self._speaking_devices()
        found = [device for device in devices if device.area.strip().casefold() == wanted]
        if not found:
            rooms = sorted({device.area for device in devices})
            raise ToolError("no device speaks in that room", code="no_such_room", rooms=rooms)
        return found

    async def _speaking_devices(self) -> Sequence[Device]:
        return [
            device
            for device in await self._registry.all_devices()
            if device.area
            and device.standing == "approved"
            and device.kind not in KINDS_WITHOUT_SPEECH
        ]
