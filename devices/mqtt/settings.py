"""Settings of the MQTT client. The configuration imports them without the client."""

import ssl
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttSettings:
    """Broker, topics, and what may be published."""

    host: str
    port: int
    username: str = ""
    password: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None
    "Checks the broker's certificate; None: the connection is not encrypted."
    base_topic: str = "earshot"
    node: str = "home"
    "Name of this server among those that use the same broker."
    discovery_prefix: str = "homeassistant"
    publishes_words: bool = False
    "True if transcripts and answers are published."
    publishes_people: bool = False
    "True if it is published which known person was heard when, and by which device."
