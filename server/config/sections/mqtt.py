"""Section `[mqtt]`: the broker that Home Assistant, or any other program, shares with us."""

import ssl
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from core.errors import ConfigError
from devices.mqtt.settings import MqttSettings
from server.config.types import Section

TOPIC_PART = "^[A-Za-z0-9_-]{1,32}$"
"Pattern of a part of a topic that the user chooses. Ids of Home Assistant allow no more."


class MqttConfig(Section, frozen=True):
    """Settings of MQTT: which broker, and what is published."""

    host: Annotated[
        str, Meta(description="Name or address of the MQTT broker. Empty: MQTT is off.")
    ] = ""
    port: Annotated[
        int,
        Meta(
            ge=0,
            le=65535,
            description="Port of the broker. 0: 8883 with TLS, else 1883.",
        ),
    ] = 0
    username: Annotated[str, Meta(description="User at the broker. Empty: none.")] = ""
    password: Annotated[str, Meta(description="Password of the user.")] = ""
    password_file: Annotated[
        str, Meta(description="File that contains the password, instead of password.")
    ] = ""
    tls: Annotated[
        bool,
        Meta(description="Whether to encrypt the connection and check the broker's certificate."),
    ] = False
    ca_file: Annotated[
        str,
        Meta(
            description=(
                "File with the certificates that sign the broker's, in PEM form. Empty: those of"
                " this machine. Only with tls."
            )
        ),
    ] = ""
    base_topic: Annotated[
        str, Meta(pattern=TOPIC_PART, description="First part of all topics.")
    ] = "earshot"
    node: Annotated[
        str,
        Meta(
            pattern=TOPIC_PART,
            description=(
                "Second part of all topics: the name of this server. Servers at one broker need"
                " different ones."
            ),
        ),
    ] = "home"
    discovery_prefix: Annotated[
        str,
        Meta(
            pattern="^[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*$",
            max_length=64,
            title="a topic like 'homeassistant'",
            description="Topic under which Home Assistant expects its discovery messages.",
        ),
    ] = "homeassistant"
    publish_words: Annotated[
        bool,
        Meta(
            description=(
                "Whether to publish what was said to devices and what they answered. Off by"
                " default, because it is private: everybody with access to the broker can read it."
            )
        ),
    ] = False
    publish_people: Annotated[
        bool,
        Meta(
            description=(
                "Whether to publish the names of people whose voices are known, and when and where"
                " they were heard last. Off by default, because it is private."
            )
        ),
    ] = False

    def __post_init__(self) -> None:
        if self.password and self.password_file:
            raise ConfigError("mqtt: set either password or password_file, not both")
        if (self.password or self.password_file) and not self.username:
            raise ConfigError("mqtt.username: required, because there is a password")
        if self.ca_file and not self.tls:
            raise ConfigError("mqtt.ca_file: only with mqtt.tls = true")
        if any(char in self.host for char in "/@ ") or self.host.count(":") == 1:
            raise ConfigError(
                "mqtt.host: a name or an address only, like broker.local; the port is mqtt.port"
            )

    def as_settings(self) -> MqttSettings:
        """Returns the settings in the client's form. Reads the files. Raises ConfigError."""
        return MqttSettings(
            host=self.host,
            port=self.port or (8883 if self.tls else 1883),
            username=self.username,
            password=self._password(),
            tls=self._tls_context() if self.tls else None,
            base_topic=self.base_topic,
            node=self.node,
            discovery_prefix=self.discovery_prefix,
            publishes_words=self.publish_words,
            publishes_people=self.publish_people,
        )

    def _password(self) -> str:
        if not self.password_file:
            return self.password
        try:
            text = Path(self.password_file).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not text"
            raise ConfigError(f"mqtt.password_file: {self.password_file}: {reason}") from error
        if not text.strip():
            raise ConfigError(f"mqtt.password_file: {self.password_file}: empty")
        return text.strip()

    def _tls_context(self) -> ssl.SSLContext:
        file = str(Path(self.ca_file).expanduser()) if self.ca_file else None
        try:
            return ssl.create_default_context(cafile=file)
        except OSError as error:  # also ssl.SSLError
            reason = error.strerror or "no certificate in PEM form"
            raise ConfigError(f"mqtt.ca_file: {self.ca_file}: {reason}") from error
