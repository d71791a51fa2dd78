"""`[willow]`: who is let in to the application server, and where."""

import msgspec
import pytest

from core.errors import ConfigError
from pipeline.settings import SessionSettings
from server.config_willow import WillowConfig


def test_this_machine_only_unless_more_is_named() -> None:
    assert (WillowConfig().was_port, WillowConfig().was_host) == (0, "127.0.0.1")
    assert WillowConfig(networks=("192.168.1.0/24",)).was_host == "0.0.0.0"


def test_what_the_door_is_given() -> None:
    config = WillowConfig(wake_groups=(("Kitchen", "Hall"), ()), audio_hosts=("nas.lan",))
    settings = config.as_settings("/state", SessionSettings(), "1")
    assert str(settings.folder) == "/state/willow"
    assert (settings.groups, settings.audio_hosts) == ((("Kitchen", "Hall"),), ("nas.lan",))
    assert [str(one) for one in settings.networks] == ["127.0.0.0/8", "::1/128"]


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"networks": ("home",)}, r"willow\.networks"),
        ({"wake_groups": (("Kitchen", "Hall"), ("hall ",))}, "'hall' is named twice"),
    ],
)
def test_what_is_wrong_is_named(wrong: dict[str, tuple[str, ...]], named: str) -> None:
    with pytest.raises((ConfigError, msgspec.ValidationError), match=named):
        WillowConfig(**wrong)  # type: ignore[arg-type]
