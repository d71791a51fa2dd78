"""Section `[telephone]`: the doors for telephone calls."""

from dataclasses import replace
from typing import Annotated, Literal
from urllib.parse import urlsplit
from uuid import UUID

from msgspec import Meta, field

from core.errors import ConfigError
from core.net.ip_addresses import IpNetwork
from devices.telephone.number import UUID_DIGITS
from devices.telephone.settings import TelephoneSettings
from pipeline.shared.settings import InitialSettings, SessionSettings, TurnDetection
from server.config.types import Section
from server.net.allowlist import listening_host, networks_of


class TelephoneConfig(Section, frozen=True):
    """Settings of telephone calls through Asterisk or Twilio. Off unless audiosocket_port or
    twilio_auth_token is set. AudioSocket has no key, so access depends on the network and on the
    call's UUID. Twilio's requests are signed."""

    audiosocket_port: Annotated[
        int,
        Meta(
            ge=0,
            le=65535,
            description=(
                "Port for Asterisk's AudioSocket over TCP. Asterisk has no usual one; its examples"
                " use 9092. 0: none."
            ),
        ),
    ] = 0
    networks: Annotated[
        tuple[str, ...],
        Meta(
            title="list of lan or networks like 192.168.1.0/24",
            description=(
                "Networks whose telephone systems may connect by AudioSocket, in addition to this"
                " machine. lan means every private network. If empty, the port listens only on a"
                " loopback address."
            ),
        ),
    ] = ()
    call_uuids: Annotated[
        tuple[str, ...],
        Meta(
            title="list of UUIDs",
            description=(
                "UUIDs whose AudioSocket calls are answered, as the dialplan gives them. If empty,"
                " every call is answered."
            ),
        ),
    ] = ()
    caller_uuid: Annotated[
        str,
        Meta(
            title="UUID that ends with 15 zeros",
            description=(
                "UUID whose last 15 digits the dialplan replaces by the caller's number, because"
                " AudioSocket has no other way to say it. Such calls are answered. If empty, UUIDs"
                " have no numbers."
            ),
        ),
    ] = ""
    twilio_auth_token: Annotated[
        str,
        Meta(
            max_length=200,
            description=(
                "Auth token of the Twilio account, which signs its requests. If empty, calls"
                " through Twilio are off."
            ),
        ),
    ] = ""
    twilio_url: Annotated[
        str,
        Meta(
            max_length=200,
            description=(
                "Address at which Twilio reaches this server, such as https://voice.example.com. If"
                " empty, the host of each request, over HTTPS."
            ),
        ),
    ] = ""
    allowed_callers: Annotated[
        tuple[Annotated[str, Meta(pattern=r"^\+[0-9]{3,15}$")], ...],
        Meta(
            title="list of telephone numbers like +493012345",
            description=(
                "Numbers whose calls are answered, through Twilio or with the number in their UUID."
                " If empty, every call is answered."
            ),
        ),
    ] = ()
    callers: Annotated[
        dict[str, Annotated[str, Meta(min_length=1, max_length=40, pattern=r"^[^\x00-\x1f]*$")]],
        Meta(
            title="table of names",
            description=(
                "Names of callers by the UUID of their calls, or by their number. The language"
                " model is told the name; it proves nothing."
            ),
        ),
    ] = field(default_factory=dict)
    greeting: Annotated[
        str,
        Meta(
            max_length=500,
            description=(
                "Words that the assistant speaks when a call begins. If empty, the caller speaks"
                " first."
            ),
        ),
    ] = ""
    detection: Annotated[
        Literal["server_vad", "semantic_vad"],
        Meta(
            description=(
                "Method of detecting the end of a turn. semantic_vad answers sooner after whole"
                " sentences, server_vad always waits for turn.silence_ms."
            )
        ),
    ] = "semantic_vad"
    max_calls: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000,
            description="Maximum number of simultaneous calls; further ones are hung up.",
        ),
    ] = 8
    max_call_s: Annotated[
        float,
        Meta(
            ge=10,
            le=86_400,
            description="Maximum length of a call in seconds: a forgotten receiver ends some time.",
        ),
    ] = 3600.0

    def __post_init__(self) -> None:
        self._networks()
        self._call_uuids()
        self._caller_uuid()
        self._check_twilio_url()

    @property
    def host(self) -> str:
        """Address to listen on: all of this machine if other machines may connect."""
        return listening_host(self.networks, self._networks())

    def as_settings(self, initial_settings: InitialSettings) -> TelephoneSettings:
        """Returns the settings in the doors' form. `initial_settings`: those of a new session."""

        def call_settings() -> SessionSettings:
            usual = initial_settings()
            detection = replace(usual.turn_detection or TurnDetection(), kind=self.detection)
            # Whoever calls wants to talk, so there is no wake word.
            return replace(usual, wake_word="", turn_detection=detection)

        return TelephoneSettings(
            networks=self._networks(),
            call_uuids=self._call_uuids(),
            caller_uuid=self._caller_uuid(),
            twilio_auth_token=self.twilio_auth_token,
            twilio_url=self.twilio_url,
            allowed_callers=frozenset(self.allowed_callers),
            callers={key.lower(): name for key, name in self.callers.items()},
            greeting=self.greeting,
            max_calls=self.max_calls,
            max_call_s=self.max_call_s,
            initial_settings=call_settings,
        )

    def _networks(self) -> tuple[IpNetwork, ...]:
        """Parses the networks. Raises ConfigError."""
        return networks_of(self.networks, "telephone.networks")

    def _call_uuids(self) -> frozenset[UUID]:
        """Parses the UUIDs. Raises ConfigError."""
        try:
            return frozenset(UUID(text) for text in self.call_uuids)
        except ValueError as error:
            raise ConfigError(
                "telephone.call_uuids: allowed are UUIDs like 40325ec2-5efd-4bd3-805f-53576e581d13"
            ) from error

    def _caller_uuid(self) -> UUID | None:
        """Parses the UUID. Raises ConfigError."""
        if not self.caller_uuid:
            return None
        try:
            uuid = UUID(self.caller_uuid)
        except ValueError:
            uuid = None
        if uuid is None or not uuid.hex.endswith("0" * UUID_DIGITS):
            raise ConfigError(
                f"telephone.caller_uuid: allowed is a UUID that ends with {UUID_DIGITS} zeros, like"
                " 40325ec2-5efd-4bd3-8000-000000000000"
            )
        return uuid

    def _check_twilio_url(self) -> None:
        """Raises ConfigError."""
        parts = urlsplit(self.twilio_url)
        if self.twilio_url and (
            parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment
        ):
            raise ConfigError(
                "telephone.twilio_url: allowed is a URL like https://voice.example.com, because"
                " Twilio's streams need TLS"
            )
