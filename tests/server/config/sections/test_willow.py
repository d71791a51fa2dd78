"""The table `[willow]`: which networks may use the application server, and its addresses."""

from typing import Any

import msgspec
import pytest

from core.errors import ConfigError
from pipeline.shared.settings import SessionSettings
from server.config import ServerConfig
from server.config.sections.willow import WillowConfig


def test_only_this_machine_is_allowed_by_default() -> None:
    assert (WillowConfig().was_port, WillowConfig().was_host) == (0, "127.0.0.1")
    assert WillowConfig(networks=("192.168.1.0/24",)).was_host == "0.0.0.0"


def test_the_settings_that_the_door_gets() -> None:
    config = WillowConfig(wake_groups=(("Kitchen", "Hall"), ()), audio_hosts=("nas.lan",))
    settings = config.as_settings("/state", SessionSettings, "1", trusts_this_machine=True)
    assert str(settings.folder) == "/state/willow"
    assert settings.audio_hosts == ("nas.lan",)
    assert [str(one) for one in settings.networks] == ["127.0.0.0/8", "::1/128"]


@pytest.mark.parametrize("server", [{"require_key": True}, {"api_key": "k" * 16}, {}])
@pytest.mark.parametrize("networks", [(), ("127.0.0.0/8", "::/0")])
def test_local_pages_and_devices_need_the_key_if_this_machine_does(
    server: dict[str, Any], networks: tuple[str, ...]
) -> None:
    """A forwarder on this machine has a local address too, and any program can send an `Origin`."""
    page = "https://kiosk.lan"
    willow = WillowConfig(page_origins=(page,), networks=(*networks, "192.168.1.0/24"))
    trusts = not ServerConfig(**server).needs_key_here
    pages = willow.as_page_settings(trusts_this_machine=trusts)
    was = willow.as_settings("/state", SessionSettings, "1", trusts_this_machine=trusts)
    for peer in ("127.0.0.1", "::1", "::ffff:127.0.0.1"):
        assert pages.admits(page, peer) is trusts
    assert pages.admits(page, "192.168.1.7")
    assert was.trusts_this_machine is trusts


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"networks": ("home",)}, r"willow\.networks"),
        ({"wake_groups": (("Kitchen", "Hall"), ("hall ",))}, "'hall' is named twice"),
    ],
)
def test_a_wrong_setting_is_named(wrong: dict[str, tuple[str, ...]], named: str) -> None:
    with pytest.raises((ConfigError, msgspec.ValidationError), match=named):
        WillowConfig(**wrong)  # type: ignore[arg-type]
