"""Who a device is and whether it may be served, as every device door needs it. The registry behind
it keeps this in a database; doors only know this file."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, Protocol

from media.processing.modes import EchoMode
from pipeline.shared.settings import SessionSettings

DeviceKind = Literal["xiaozhi", "willow", "wyoming"]
"""The protocol that a device speaks."""

DeviceEcho = Literal[EchoMode, ""]
"""Empty: as everywhere."""

ApprovalState = Literal["new", "approved", "blocked"]
"""`new`: somebody has to approve it first; `blocked`: somebody said no."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClaims:
    """What a device says of itself when it comes. Nothing of it is to be trusted but `address`."""

    kind: DeviceKind
    hardware_id: str
    "Its MAC (lower case, colons); for what has none, its address."
    address: str
    """From where it came, an IP address. Empty where a proxy's headers say that it came from
    elsewhere: a loopback address is approved unasked."""
    name: str = ""
    board: str = ""
    firmware: str = ""
    language: str = ""
    "ISO 639-1, of its own display."
    identity: bytes = field(default=b"", repr=False)
    """A digest of what the device keeps to itself: everybody in its network knows its MAC. Empty:
    its protocol has no such thing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProfile:
    """How the assistant is to be on a device; an empty or None value: as everywhere."""

    voice: str = ""
    language: str = ""
    "ISO 639-1."
    instructions: str = ""
    wake_word: str = ""
    volume: int | None = None
    "0 to 100, of the device's loudspeaker."
    answer_temperature: float | None = None
    tools: tuple[str, ...] | None = None
    "Names of the server's tools that may be used; None: all."
    echo: DeviceEcho = ""
    "For boards that hear themselves, among boards that do not."

    def applied(self, settings: SessionSettings) -> SessionSettings:
        """The settings that a session on this device begins with."""
        return replace(
            settings,
            voice=self.voice or settings.voice,
            language=self.language or settings.language,
            instructions=self.instructions or settings.instructions,
            answer_temperature=(
                settings.answer_temperature
                if self.answer_temperature is None
                else self.answer_temperature
            ),
            tools=settings.tools if self.tools is None else self.tools,
            echo=self.echo or settings.echo,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device as it is known."""

    id: str
    "Ours, `dev_...`: stays when it is renamed or gets other firmware."
    kind: DeviceKind
    hardware_id: str
    name: str
    area: str = ""
    "The room it stands in; empty: not said."
    standing: ApprovalState = "new"
    profile: DeviceProfile = field(default_factory=DeviceProfile)
    board: str = ""
    firmware: str = ""
    address: str = ""
    last_seen: datetime | None = None
    pairing_code: str = field(default="", repr=False)
    """Shown on, or spoken by, a device while it waits; empty once it is approved, where its kind
    shows none, and for who comes while another one waits under it."""
    has_new_identity: bool = False
    """It was approved, and came with another identity: it was reset, or somebody uses its MAC. Who
    has the former one is served; the other waits under `pairing_code`."""
    identity: bytes = field(default=b"", repr=False)
    "Of the `DeviceClaims` that was approved; empty: none is known."


class DeviceDirectory(Protocol):
    """The devices that are known. Every call may raise StorageFailed."""

    async def check_in(self, contact: DeviceClaims) -> Device:
        """Know the device from now on, when and whence it was seen last. One that was never seen
        before is new, or approved where the configuration says that its network is enough. So is
        one with another identity than was approved, as it is told here."""
        ...

    async def find(
        self, kind: DeviceKind, hardware_id: str, identity: bytes = b""
    ) -> Device | None:
        """`identity`: of who asks, for whom another one's device is `new`; empty: of nobody."""
        ...

    async def issue_token(self, device_id: str, identity: bytes = b"") -> str:
        """A new key for a device that is approved, or that shows a code and waits: then the key
        opens nothing before the approval. It is told once and kept as a digest; the last few hold
        on until they expire. `identity`: of the board, which alone may use it. Raises NotFound."""
        ...

    async def bearer(self, token: str, identity: bytes = b"") -> Device | None:
        """Whose key this is; None: nobody's, expired, or of a device that is not approved, or not
        with this identity."""
        ...

    async def waits(self, token: str, identity: bytes) -> Device | None:
        """The device that waits for approval under a code, whose key this is; None: none does."""
        ...

    async def in_area(self, area: str) -> Sequence[Device]:
        """Approved ones."""
        ...

    def changed(self) -> asyncio.Event:
        """Set at the next change of any device (a new one, approved, renamed, forgotten)."""
        ...


class DeviceSettingsStore(Protocol):
    """Small JSON values of the device doors, kept beside the devices. Every call may raise
    StorageFailed."""

    async def read(self, key: str, device_id: str = "") -> Any:
        """None: never written. `key` begins with the door's name (`willow.config`); `device_id`:
        the value is that device's, and is forgotten with it."""
        ...

    async def write(self, key: str, value: Any, device_id: str = "") -> None:
        """Anything that JSON has; None: forget it. Raises NotFound for an unknown device."""
        ...
