"""The MQTT client of a server: only where a broker is configured, and only with its library."""

import sys
from typing import cast

import pytest

from core.errors import ConfigError
from devices.mqtt.client import MqttSources
from server.compose.mqtt import last_turns_of, open_mqtt
from server.config.sections.mqtt import MqttConfig
from tests.pipeline.fakes import Counts, ManualClock


def test_nothing_is_collected_while_it_is_off() -> None:
    assert last_turns_of(MqttConfig(), ManualClock()) is None
    assert last_turns_of(MqttConfig(host="broker"), ManualClock()) is not None


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiomqtt", None)
    monkeypatch.delitem(sys.modules, "devices.mqtt.broker", raising=False)
    config, sources = MqttConfig(host="broker"), cast("MqttSources", None)
    with pytest.raises(ConfigError, match=r"needs aiomqtt: pip install 'earshot-server\[mqtt\]'"):
        open_mqtt(config, sources, ManualClock(), Counts())
