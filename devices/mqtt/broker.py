"""Connection to the broker, with the library aiomqtt. The only module that knows the library."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import aiomqtt
from aiomqtt.exceptions import MqttConnectError
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from devices.mqtt.client import BrokerError, BrokerRefused, ReceivedMessage
from devices.mqtt.message_queue import OutgoingMessage
from devices.mqtt.settings import MqttSettings

MAX_PACKET_BYTES = 65_536
"""Largest packet that the broker may send us. It drops larger ones, so that a client of the broker
cannot fill our memory. A command above its own, smaller limit gets an error."""

MAX_UNREAD = 256
"Most messages that wait to be read; the library drops later ones."

KEEPALIVE_S = 30
"A broker that is silent for one and a half times as long is gone."

TIMEOUT_S = 10.0
"Limit for the answer of the broker to one message."

REFUSED_CODES = frozenset({1, 2, 4, 5, 0x84, 0x85, 0x86, 0x87, 0x8A, 0x8C})
"Codes of refusals by which the broker means the settings, of MQTT 3.1.1 and 5."

logger = logging.getLogger(__name__)
logger.setLevel(logging.WARNING)  # below that the library writes a line per message


class AiomqttConnection:
    """A `devices.mqtt.client.BrokerConnection`."""

    def __init__(self, client: aiomqtt.Client) -> None:
        self._client = client

    async def publish(self, message: OutgoingMessage) -> None:
        """Returns when the broker has the message. Raises BrokerError."""
        try:
            await self._client.publish(
                message.topic, message.payload, qos=1, retain=message.is_retained
            )
        except aiomqtt.MqttError as error:
            raise BrokerError(str(error)) from None

    async def subscribe(self, topics: Sequence[str], *, with_retained: bool) -> None:
        """Subscribes. `with_retained`: the broker sends what it holds of these topics. Raises
        BrokerError."""
        options = SubscribeOptions(
            qos=1,
            noLocal=True,
            retainHandling=(
                SubscribeOptions.RETAIN_SEND_ON_SUBSCRIBE
                if with_retained
                else SubscribeOptions.RETAIN_DO_NOT_SEND
            ),
        )
        try:
            codes = await self._client.subscribe([(topic, options) for topic in topics])
        except aiomqtt.MqttError as error:
            raise BrokerError(str(error)) from None
        refused = [topic for topic, code in zip(topics, codes, strict=True) if _is_failure(code)]
        if refused:
            raise BrokerRefused(f"the broker does not let us subscribe to {', '.join(refused)}")

    async def messages(self) -> AsyncIterator[ReceivedMessage]:
        """Yields messages of the subscriptions. Raises BrokerError when the connection is lost."""
        try:
            async for message in self._client.messages:
                payload = message.payload if isinstance(message.payload, bytes) else b""
                yield ReceivedMessage(str(message.topic), payload, is_retained=message.retain)
        except aiomqtt.MqttError as error:
            cause = error.__cause__ or error
            raise BrokerError(f"the connection was lost: {cause}") from None


@asynccontextmanager
async def connect(
    settings: MqttSettings, will: OutgoingMessage
) -> AsyncIterator[AiomqttConnection]:
    """Connects. `will`: sent by the broker when the connection is lost. Raises BrokerError, or
    BrokerRefused if the broker does not accept the settings."""
    limits = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    limits.MaximumPacketSize = MAX_PACKET_BYTES
    client = aiomqtt.Client(
        settings.host,
        settings.port,
        identifier=f"{settings.base_topic}-{settings.node}",
        username=settings.username or None,
        password=settings.password or None,
        protocol=aiomqtt.ProtocolVersion.V5,
        will=aiomqtt.Will(will.topic, will.payload, qos=1, retain=will.is_retained),
        tls_context=settings.tls,
        properties=limits,
        keepalive=KEEPALIVE_S,
        timeout=TIMEOUT_S,
        max_queued_incoming_messages=MAX_UNREAD,
        clean_start=True,
        logger=logger,
    )
    try:
        async with client:
            yield AiomqttConnection(client)
    except MqttConnectError as error:
        if _code(error) in REFUSED_CODES:
            raise BrokerRefused(f"the broker refuses us: {error}") from None
        raise BrokerError(str(error)) from None
    except aiomqtt.MqttError as error:
        raise BrokerError(str(error)) from None


def _code(error: MqttConnectError) -> int:
    return error.rc if isinstance(error.rc, int) else getattr(error.rc, "value", 0)


def _is_failure(code: object) -> bool:
    """Returns True for a code with which the broker refuses a subscription."""
    number = code if isinstance(code, int) else getattr(code, "value", 0)
    return number >= 0x80
