"""Names of all topics. Nothing in a topic comes from a user: ids are ours, and names of devices and
rooms stand in payloads only."""

import re
from dataclasses import dataclass
from typing import Literal, get_args

CommandName = Literal["announce", "start_conversation", "stop", "volume"]
"Last part of a command's topic."

COMMAND_NAMES: tuple[CommandName, ...] = get_args(CommandName)

OwnerKind = Literal["device", "person"]
"Kind of what has retained topics of its own, besides the server."

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
"Pattern of our ids. Whatever else stands in a topic was not published by us."


@dataclass(frozen=True, slots=True)
class CommandTopic:
    """Meaning of the topic of a command."""

    name: CommandName
    device_id: str
    "Empty: all devices, or those of the area that the payload names."


@dataclass(frozen=True, slots=True)
class Topics:
    """Topics of one server."""

    base: str
    node: str
    discovery: str
    "Prefix of Home Assistant's discovery."

    @property
    def root(self) -> str:
        """Beginning of all topics except those of the discovery."""
        return f"{self.base}/{self.node}"

    @property
    def availability(self) -> str:
        """Holds `online` while the server is connected; else `offline`."""
        return f"{self.root}/availability"

    @property
    def server_state(self) -> str:
        return f"{self.root}/state"

    @property
    def errors(self) -> str:
        """Gets an object for each command that was refused or failed."""
        return f"{self.root}/error"

    @property
    def announce(self) -> str:
        """Takes announcements for an area, or for all devices."""
        return f"{self.root}/announce"

    @property
    def birth(self) -> str:
        """Gets `online` from Home Assistant when its MQTT integration has started."""
        return f"{self.discovery}/status"

    def state(self, kind: OwnerKind, owner_id: str) -> str:
        """Returns the topic of the state of a device or a person."""
        return f"{self.root}/{kind}/{owner_id}/state"

    def words(self, device_id: str = "") -> str:
        """Returns the topic of the last words that a device heard; without an id, those of all
        clients that are no device."""
        return f"{self.root}/device/{device_id}/words" if device_id else f"{self.root}/words"

    def command(self, device_id: str, name: CommandName) -> str:
        """Returns the topic that takes this command for a device."""
        return f"{self.root}/device/{device_id}/{name}"

    def unique_id(self, owner_id: str = "") -> str:
        """Returns the id that Home Assistant keeps for a device or person; without an id, for the
        server."""
        return f"{self.base}_{self.node}" + (f"_{owner_id}" if owner_id else "")

    def config(self, owner_id: str = "") -> str:
        """Returns the discovery topic of a device or person; without an id, of the server."""
        return f"{self.discovery}/device/{self.unique_id(owner_id)}/config"

    def subscriptions(self) -> tuple[str, ...]:
        """Lists the topics of commands, and Home Assistant's birth message."""
        commands = (f"{self.root}/device/+/{name}" for name in COMMAND_NAMES)
        return (*commands, self.announce, self.birth)

    def kept_states(self) -> tuple[str, ...]:
        """Lists the topics whose retained messages tell what was published before this
        connection."""
        kinds: tuple[OwnerKind, ...] = get_args(OwnerKind)
        return tuple(f"{self.root}/{kind}/+/state" for kind in kinds)

    def owner_of_state(self, topic: str) -> tuple[OwnerKind, str] | None:
        """Returns whose state a topic holds; None: it is no topic of a state."""
        kinds: tuple[OwnerKind, ...] = get_args(OwnerKind)
        for kind in kinds:
            start, end = f"{self.root}/{kind}/", "/state"
            if topic.startswith(start) and topic.endswith(end):
                owner_id = topic[len(start) : -len(end)]
                return (kind, owner_id) if _ID.fullmatch(owner_id) else None
        return None

    def parse_command(self, topic: str) -> CommandTopic | None:
        """Returns which command a topic means; None: it is no topic of a command."""
        if topic == self.announce:
            return CommandTopic("announce", "")
        start = f"{self.root}/device/"
        device_id, _, name = topic.removeprefix(start).partition("/")
        found = next((known for known in COMMAND_NAMES if known == name), None)
        if not topic.startswith(start) or not _ID.fullmatch(device_id) or found is None:
            return None
        return CommandTopic(found, device_id)
