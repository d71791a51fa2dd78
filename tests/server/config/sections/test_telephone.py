"""The telephone's settings, as the configuration sets them."""

from uuid import UUID

import pytest

from core.errors import ConfigError
from pipeline.shared.settings import SessionSettings, TurnDetection
from server.config.sections.telephone import TelephoneConfig

CALL = "40325EC2-5efd-4bd3-805f-53576e581d13"


def test_calls_have_no_wake_word_and_semantic_turn_detection() -> None:
    usual = SessionSettings(wake_word="okay_nabu", turn_detection=TurnDetection(threshold=0.7))
    fresh = TelephoneConfig().as_settings(lambda: usual).initial_settings()
    assert fresh.turn_detection == TurnDetection(kind="semantic_vad", threshold=0.7)
    assert fresh.wake_word == ""


def test_uuids_may_be_written_in_capitals() -> None:
    config = TelephoneConfig(call_uuids=(CALL,), callers={CALL: "Grandma"})
    settings = config.as_settings(SessionSettings)
    assert settings.call_uuids == {UUID(CALL)}
    assert settings.callers == {str(UUID(CALL)): "Grandma"}


def test_it_listens_on_this_machine_until_networks_are_named() -> None:
    assert TelephoneConfig().audiosocket_port == 0
    assert TelephoneConfig().host == "127.0.0.1"
    assert TelephoneConfig(networks=("192.168.1.0/24",)).host == "0.0.0.0"


def test_a_wrong_uuid_or_network_names_the_setting() -> None:
    with pytest.raises(ConfigError, match=r"telephone\.call_uuids: allowed are UUIDs"):
        TelephoneConfig(call_uuids=("kitchen",))
    for wrong in ("kitchen", CALL):
        with pytest.raises(ConfigError, match=r"telephone\.caller_uuid: allowed is a UUID that"):
            TelephoneConfig(caller_uuid=wrong)
    numbered = TelephoneConfig(caller_uuid="40325ec2-5efd-4bd3-8000-000000000000")
    assert numbered.as_settings(SessionSettings).caller_uuid == UUID(numbered.caller_uuid)
    with pytest.raises(ConfigError, match=r"telephone\.networks"):
        TelephoneConfig(networks=("kitchen",))


def test_the_auth_token_is_a_secret() -> None:
    config = TelephoneConfig(twilio_auth_token="c0ffee")
    settings = config.as_settings(SessionSettings)
    assert settings.twilio_auth_token == "c0ffee"
    assert "c0ffee" not in repr(config) + repr(settings)


@pytest.mark.parametrize("url", ["http://a.example", "a.example", "https://a.example/?x=1"])
def test_a_wrong_twilio_url_names_the_setting(url: str) -> None:
    with pytest.raises(ConfigError, match=r"telephone\.twilio_url: allowed is a URL like https"):
        TelephoneConfig(twilio_url=url)
