"""Identity, profile and approval state of devices, as every device door needs them.

`devices/registry` implements the protocols of this module with a database; doors know only this
module.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal, Protocol, TypeVar

from media.processing.modes import EchoMode
from pipeline.shared.settings import BargeInPolicy, SessionSettings

DeviceKind = Literal["xiaozhi", "willow", "wyoming", "esphome"]
"The protocol that a device speaks."

SessionEcho = Literal[EchoMode, ""]
"Echo mode of a profile; empty: the server's setting."

SessionBargeIn = Literal[BargeInPolicy, ""]
"Barge-in policy of a profile; empty: the server's setting."

ApprovalState = Literal["new", "approved", "blocked"]
"`new`: a person has to approve it first; `blocked`: a person refused it."


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClaims:
    """Description that a device gives of itself when it connects. Only `address` can be trusted."""

    kind: DeviceKind
    hardware_id: str
    "MAC of the device (lower case, colons), or its address if it has no MAC."
    address: str
    """IP address that it connects from. Empty where a proxy's headers say that the request came
    from elsewhere, because a loopback address is approved without asking."""
    name: str = ""
    board: str = ""
    firmware: str = ""
    language: str = ""
    "Language of its own display, in ISO 639-1."
    identity: bytes = field(default=b"", repr=False)
    """Digest of a secret of the device. Its MAC is no proof: everybody in its network knows it.
    Empty: its protocol has no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerProfile:
    """Settings of answers, of one person or as part of a session. An empty or None value means the
    setting that would hold without the profile."""

    voice: str = ""
    language: str = ""
    "ISO 639-1. In the profile of a session, also the language that is recognised."
    speed: float | None = None
    "Rate of speech of the voice, 0.25 to 1.5; 1 is normal."
    instructions: str = field(default="", repr=False)

    def apply_to(self, settings: SessionSettings) -> SessionSettings:
        """Returns the settings with those of the profile in place of their own."""
        return replace(
            settings,
            voice=self.voice or settings.voice,
            speed=settings.speed if self.speed is None else self.speed,
            language=self.language or settings.language,
            instructions=self.instructions or settings.instructions,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonProfile(AnswerProfile):
    """Settings of answers to one person, who is known by the voice."""

    volume: int | None = None
    "Volume of the loudspeaker of a device that has one, 0 to 100."
    follow_voice: bool = False
    """Whether the server adds sure utterances of this person to the recordings of the voice, which
    changes with the years."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallingPerson:
    """Person whose telephone number a caller has, as the telephone network says. It may be
    forged."""

    id: str
    name: str
    language: str
    "Language of the person's profile, ISO 639-1; empty: none."


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionProfile(AnswerProfile):
    """Settings with which the sessions of a device or of a named key begin. An empty or None value
    means the server's setting."""

    asr: str = ""
    "Name of the recogniser."
    answer_temperature: float | None = None
    tools: tuple[str, ...] | None = None
    "Names of the server's tools that may be used; None: all."
    echo: SessionEcho = ""
    "Echo mode, for a microphone that picks up its own loudspeaker."
    barge_in: SessionBargeIn = ""
    "Speech that stops an answer."

    def apply_to(self, settings: SessionSettings) -> SessionSettings:
        """Returns the settings that a session with this profile begins with."""
        return replace(
            AnswerProfile.apply_to(self, settings),
            asr=self.asr or settings.asr,
            answer_temperature=(
                settings.answer_temperature
                if self.answer_temperature is None
                else self.answer_temperature
            ),
            tools=settings.tools if self.tools is None else self.tools,
            echo=self.echo or settings.echo,
            barge_in=self.barge_in or settings.barge_in,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProfile(SessionProfile):
    """Settings of one device: those of its sessions, and of the device itself."""

    wake_word: str = ""
    volume: int | None = None
    "Volume of the device's loudspeaker, 0 to 100."


EMPTY_PROFILE = SessionProfile()
"The profile that leaves everything to the server's settings."

ProfileT = TypeVar("ProfileT", bound=AnswerProfile)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device as the registry knows it."""

    id: str
    """Id that Earshot gave it, `dev_...`. It stays when the device is renamed or gets other
    firmware."""
    kind: DeviceKind
    hardware_id: str
    name: str
    area: str = ""
    "The room it stands in; empty: not set."
    standing: ApprovalState = "new"
    profile: DeviceProfile = field(default_factory=DeviceProfile)
    board: str = ""
    firmware: str = ""
    address: str = ""
    last_seen: datetime | None = None
    pairing_code: str = field(default="", repr=False)
    """Code that the device shows or speaks while it waits for approval. Empty once it is approved,
    if its kind shows no code, or if another device already waits under this hardware id."""
    has_new_identity: bool = False
    """True if a device came with this hardware id but another identity than the approved one: the
    device was reset, or another device uses its MAC. The device with the approved identity is
    served; the newcomer waits under `pairing_code`."""
    identity: bytes = field(default=b"", repr=False)
    "Identity of the `DeviceClaims` that was approved; empty: none is known."


class DeviceDirectory(Protocol):
    """The known devices. Every call may raise StorageError."""

    async def check_in(self, claims: DeviceClaims) -> Device:
        """Records the device, and when and from where it was last seen.

        A device that was never seen before is `new`, or `approved` if the configuration trusts its
        network. The result treats a device with another identity than the approved one in the same
        way.
        """
        ...

    async def find(
        self, kind: DeviceKind, hardware_id: str, identity: bytes = b""
    ) -> Device | None:
        """Returns the device, or None if it is unknown.

        identity: identity of the device that asks. If another identity is approved, the result has
        the state `new`. Empty: identities are not compared.
        """
        ...

    async def issue_token(self, device_id: str, identity: bytes = b"") -> str:
        """Returns a new key for a device that is approved, or that waits for approval under a code.

        A key of a waiting device opens nothing before the approval. The key is returned only here
        and stored as a digest; the last few keys stay valid until they expire.
        identity: identity of the device, which alone may use the key.
        Raises NotFound.
        """
        ...

    async def device_with_key(self, token: str, identity: bytes = b"") -> Device | None:
        """Returns the approved device that this key belongs to.

        None: the key is unknown or expired, its device is not approved, or it has another identity.
        """
        ...

    async def waiting_device_with_key(self, token: str, identity: bytes) -> Device | None:
        """Returns the device with this key that waits for approval under a code; None: there is
        none."""
        ...

    async def in_area(self, area: str) -> Sequence[Device]:
        """Returns the approved devices of the area."""
        ...

    async def edit(
        self, device_id: str, *, name: str | None = None, area: str | None = None
    ) -> Device:
        """Changes name and area; None leaves a value as it is. Raises NotFound."""
        ...

    def changed(self) -> asyncio.Event:
        """Returns the event that is set at the next change of any device (new, approved, renamed,
        forgotten)."""
        ...


class DeviceSettingsStore(Protocol):
    """Small JSON values of the device doors, stored together with the devices.

    Every call may raise StorageError.
    """

    async def read(self, key: str, device_id: str = "") -> object:
        """Returns the value, or None if it was never written.

        key: begins with the door's name (`willow.config`).
        device_id: the device that the value belongs to; it is deleted with the device.
        """
        ...

    async def write(self, key: str, value: object, device_id: str = "") -> None:
        """Stores a JSON value; None deletes it. Raises NotFound for an unknown device."""
        ...
