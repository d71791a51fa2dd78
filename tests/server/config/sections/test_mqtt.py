"""The table `[mqtt]`: off by default, secrets from files, and what is refused."""

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from core.errors import ConfigError
from server.config.sections.mqtt import MqttConfig
from server.net.tls import open_tls


def test_it_is_off_and_private_by_default() -> None:
    usual = MqttConfig()
    assert usual.host == ""
    assert not usual.publish_words
    assert not usual.publish_people


def test_the_port_follows_from_tls() -> None:
    assert MqttConfig(host="broker").as_settings().port == 1883
    assert MqttConfig(host="broker", tls=True).as_settings().port == 8883
    assert MqttConfig(host="broker", tls=True, port=1884).as_settings().port == 1884


def test_the_password_comes_from_a_file_and_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter2\n")
    config = MqttConfig(host="b", username="u", password_file=str(tmp_path / "password"))
    settings = config.as_settings()
    assert settings.password == "hunter2"
    direct = MqttConfig(host="b", username="u", password="hunter2")
    assert "hunter2" not in repr(settings) + repr(direct)


def test_a_certificate_is_read(tmp_path: Path) -> None:
    open_tls("auto", tmp_path, ("broker",), (), datetime.now(UTC))
    config = MqttConfig(host="broker", tls=True, ca_file=str(tmp_path / "tls.pem"))
    context = config.as_settings().tls
    assert context is not None
    assert context.check_hostname


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"password": "a", "password_file": "b", "username": "u"}, "either password or"),
        ({"password": "a"}, "mqtt.username: required"),
        ({"ca_file": "a.pem"}, "only with mqtt.tls"),
        ({"host": "mqtt://broker"}, "mqtt.host: a name or an address only"),
        ({"host": "broker:1883"}, "the port is mqtt.port"),
    ],
)
def test_what_cannot_be_meant_is_refused(table: dict[str, str], message: str) -> None:
    with pytest.raises((ConfigError, msgspec.ValidationError), match=message):
        msgspec.convert(table, MqttConfig)


@pytest.mark.parametrize("node", ["", "a/b", "a+", "#", "a b", "x" * 33])
def test_a_node_is_a_part_of_a_topic(node: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="node"):
        msgspec.convert({"node": node}, MqttConfig)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    with pytest.raises(ConfigError, match=r"mqtt\.password_file: .*gone: No such file"):
        MqttConfig(host="b", username="u", password_file=gone).as_settings()
    with pytest.raises(ConfigError, match=r"mqtt\.ca_file: .*gone: No such file"):
        MqttConfig(host="b", tls=True, ca_file=gone).as_settings()
    (tmp_path / "text").write_text("no certificate")
    with pytest.raises(ConfigError, match=r"mqtt\.ca_file: .*text: "):
        MqttConfig(host="b", tls=True, ca_file=str(tmp_path / "text")).as_settings()
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(ConfigError, match=r"mqtt\.password_file: .*empty: empty"):
        MqttConfig(host="b", username="u", password_file=str(tmp_path / "empty")).as_settings()
