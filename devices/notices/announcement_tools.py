"""Tools that speak in rooms: say something, ask somebody a question, list the rooms.

Programs have them by MCP. The assistant has them only with `tools.rooms`, because then every guest
who talks to it can speak in other rooms.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta

from core.access.named_key import CALLER_KEY, KeyScope
from core.ports import ToolContext, ToolOutcome, ToolSpec
from devices.api.door import KINDS_WITHOUT_SPEECH
from devices.fleet.directory import Device, DeviceKind
from devices.fleet.presence import AskableDevice, DeviceNotification, Presence
from devices.notices.announcements import Announcements
from devices.registry.registry import DeviceRegistry
from pipeline.conversation.conversation import Conversations, RoomSession
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

NOT_CONNECTED = "it is not connected"
SESSION_NAME = "a browser or program"
"Name of a session that says in which room it is."

ASKER = "the question comes from there"
BUSY = "it is busy, or left while it was asked"

NOT_ASKABLE: Mapping[DeviceKind, str] = {
    "esphome": "its firmware does not listen after an announcement",
    "willow": "Willow's firmware does not listen after a notification",
    "wyoming": "a Wyoming client calls the server, which cannot call it",
    "xiaozhi": "it is connected only during a conversation",
}
"Reasons why a device of a kind cannot be asked, for the program that wants to."

_NO_TOOLS: Sequence[ToolSpec] = ()

Text = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT_CHARS)]
Room = Annotated[str, Meta(max_length=100, description="Name of the room, as list_rooms has it")]
WaitS = Annotated[
    int, Meta(ge=5, le=MAX_WAIT_S, description="Seconds to wait for the answer, all in all")
]


class AnnouncementTools:
    """A ToolProvider for callers whose key may manage devices."""

    def __init__(
        self,
        registry: DeviceRegistry,
        presence: Presence,
        announcements: Announcements,
        conversations: Conversations,
    ) -> None:
        """conversations: their sessions may say in which room they are, such as a browser's."""
        self._registry, self._presence = registry, presence
        self._conversations = conversations
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
            is_askable = self._askable(device) is not None
            rooms[device.area] = rooms.get(device.area, False) or is_askable
        rooms |= dict.fromkeys(self._conversations.sessions_by_area(), True)
        return {"rooms": [{"name": name, "can_be_asked": rooms[name]} for name in sorted(rooms)]}

    @tool()
    async def announce_in_room(self, text: Text, room: Room) -> dict[str, Any]:
        """Says something aloud in a room. If no device is connected there, it is said when one
        connects within 15 minutes."""
        devices, sessions = await self._found_in(room)
        count = sum(session.say(text) for session in sessions)
        if devices:
            count += len(await self._announcements.to_area(room, DeviceNotification(text=text)))
        return {"spoken_by": count, "is_waiting": not count}

    @tool(timeout_s=ASK_TIMEOUT_S)
    async def ask_in_room(
        self, context: ToolContext, question: Text, room: Room, wait_s: WaitS = 30
    ) -> dict[str, Any]:
        """Asks the person in a room a question aloud, and returns the words of the answer."""
        reasons: dict[str, str] = {}
        try:
            async with asyncio.timeout(wait_s):
                devices, sessions = await self._found_in(room)
                for device in devices:
                    live = self._askable(device)
                    if device.id == context.place.device_id:
                        reasons[device.name] = ASKER
                    elif live is None:
                        reasons[device.name] = self._why_not(device)
                    elif (words := await live.ask(question)) is not None:
                        return {"answer": words, "device": device.name}
                    else:
                        reasons[device.name] = BUSY
                for session in sessions:
                    if session.conversation_key == context.conversation_id:
                        reasons[SESSION_NAME] = ASKER
                    elif (words := await session.ask(question)) is not None:
                        return {"answer": words, "device": SESSION_NAME}
                    else:
                        reasons[SESSION_NAME] = BUSY
        except TimeoutError:
            message = f"nobody answered within {wait_s} s; the question may still be spoken"
            raise ToolError(message, code="no_answer") from None
        raise ToolError(
            "no device there can be asked now; announce_in_room may work",
            code="nobody_to_ask",
            reasons=reasons,
            can_be_asked=await self._rooms_to_ask(),
        )

    def _askable(self, device: Device) -> AskableDevice | None:
        """Returns the connection of a device on which somebody can be asked."""
        live: object = self._presence.find(device.id)
        return live if isinstance(live, AskableDevice) and live.can_be_asked else None

    def _why_not(self, device: Device) -> str:
        is_here = self._presence.find(device.id) is not None
        # A board comes only for a conversation, so this says more than that it is away.
        return NOT_ASKABLE[device.kind] if is_here or device.kind == "xiaozhi" else NOT_CONNECTED

    async def _rooms_to_ask(self) -> Mapping[str, list[str]]:
        """Returns the devices that can be asked now, by room."""
        rooms: dict[str, list[str]] = {}
        for device in await self._speaking_devices():
            if self._askable(device) is not None:
                rooms.setdefault(device.area, []).append(device.name)
        for area in self._conversations.sessions_by_area():
            rooms.setdefault(area, []).append(SESSION_NAME)
        return rooms

    async def _found_in(self, room: str) -> tuple[Sequence[Device], Sequence[RoomSession]]:
        """Returns the devices and the sessions in a room. Raises ToolError if neither speaks."""
        wanted = _folded(room)
        devices = await self._speaking_devices()
        found = [device for device in devices if _folded(device.area) == wanted]
        by_area = self._conversations.sessions_by_area()
        sessions = [
            one for area, them in by_area.items() if _folded(area) == wanted for one in them
        ]
        if not (found or sessions):
            raise ToolError(
                "no device speaks in that room",
                code="no_such_room",
                rooms=sorted({device.area for device in devices} | set(by_area)),
                can_be_asked=await self._rooms_to_ask(),
            )
        return found, sessions

    async def _speaking_devices(self) -> Sequence[Device]:
        return [
            device
            for device in await self._registry.all_devices()
            if device.area
            and device.standing == "approved"
            and device.kind not in KINDS_WITHOUT_SPEECH
        ]


def _folded(area: str) -> str:
    return area.strip().casefold()
