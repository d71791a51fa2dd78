"""Creates the MQTT client of the server, if a broker is configured."""

from core.errors import ConfigError
from core.ports import Clock, Metrics
from devices.mqtt.client import MqttClient, MqttSources
from devices.mqtt.last_turns import LastTurns
from server.config.sections.mqtt import MqttConfig


def last_turns_of(config: MqttConfig, clock: Clock) -> LastTurns | None:
    """Returns what collects the events of sessions for MQTT; None: MQTT is off."""
    if not config.host:
        return None
    return LastTurns(clock, keeps_words=config.publish_words, keeps_people=config.publish_people)


def open_mqtt(
    config: MqttConfig, sources: MqttSources, clock: Clock, metrics: Metrics
) -> MqttClient:
    """Returns the client. Raises ConfigError without the library, and for files of the settings
    that cannot be read."""
    try:
        from devices.mqtt.broker import connect
    except ImportError as error:
        raise ConfigError(
            f"config.mqtt.host needs aiomqtt: pip install 'earshot-server[mqtt]' ({error})"
        ) from error
    return MqttClient(config.as_settings(), sources, connect, clock, metrics)
