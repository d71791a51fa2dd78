"""Settings of the telephone doors. The configuration imports them without the doors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from core.net.ip_addresses import IpNetwork
from pipeline.shared.settings import InitialSettings, SessionSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class TelephoneSettings:
    """Settings of the telephone doors."""

    networks: tuple[IpNetwork, ...] = ()
    "Networks whose AudioSocket connections are accepted."
    call_uuids: frozenset[UUID] = frozenset()
    "UUIDs whose calls are answered; empty: every UUID."
    caller_uuid: UUID | None = None
    """UUID with zeros in place of its last 15 digits, where calls have the caller's number. None:
    no call has one."""
    twilio_auth_token: str = field(default="", repr=False)
    "Secret of the Twilio account, with which it signs requests; empty: the door is closed."
    twilio_url: str = ""
    "URL of this server as Twilio calls it, such as https://voice.example.com; empty: as requested."
    allowed_callers: frozenset[str] = frozenset()
    """Telephone numbers whose calls through Twilio, or with a number in their UUID, are answered;
    empty: every number."""
    callers: Mapping[str, str] = field(default_factory=dict[str, str])
    "Name of a caller by telephone number, or by the UUID of AudioSocket in lower case."
    greeting: str = ""
    "Words that are spoken when a call begins; empty: the caller speaks first."
    max_calls: int = 8
    "Most calls at once, over all doors."
    max_call_s: float = 3600.0
    "Longest call in seconds."
    initial_settings: InitialSettings = SessionSettings
    "Settings that a session begins with."
