"""The `[ice]` table."""

from typing import Any

import msgspec
import pytest

from core.errors import ConfigError
from media.webrtc.ice.settings import IceServer, IceSettings, PortRange
from server.config.sections.ice import IceConfig

TURN = "turn:turn.example:3478?transport=udp"
SHARED = {"urls": ["stun:turn.example", TURN], "shared_secret": "n0rth"}


def ice(**table: Any) -> IceConfig:
    return msgspec.convert(table, IceConfig)


def test_no_ice_server_is_used_by_default() -> None:
    settings = IceConfig().as_settings()
    assert (settings.servers, settings.ports, settings.public_address) == ((), None, "")
    assert settings.is_relay_only is IceSettings().is_relay_only is False


def test_every_setting_reaches_a_peer() -> None:
    named = {"urls": [TURN], "username": "me", "password": "pass"}
    settings = ice(
        servers=[SHARED, named, {"urls": ["stun:b.example"]}],
        ports="40000-40999",
        public_address="198.51.100.7",
        relay_only=True,
        gather_timeout_s=1,
        credential_ttl_s=600,
    ).as_settings()
    assert settings.servers == (
        IceServer(("stun:turn.example", TURN), shared_secret="n0rth"),
        IceServer((TURN,), "me", "pass"),
        IceServer(("stun:b.example",)),
    )
    assert settings.ports == PortRange(40_000, 40_999)
    assert (settings.public_address, settings.is_relay_only) == ("198.51.100.7", True)
    assert (settings.gather_timeout_s, settings.credential_ttl_s) == (1, 600)


def test_credentials_expire_by_the_wall_clock() -> None:
    (turn,) = ice(servers=[SHARED], credential_ttl_s=600).as_settings().minted()
    expires_s = int((turn.username or "").partition(":")[0])
    assert expires_s > 1_700_000_000 + 600


@pytest.mark.parametrize(
    "table",
    [
        {"servers": [{"urls": []}]},
        {"servers": [{"urls": [TURN]}]},
        {"servers": [{"urls": ["http://turn.example"]}]},
        {"servers": [{"urls": [TURN], "username": "me"}]},
        {"servers": [{**SHARED, "username": "me", "password": "p"}]},
        {"servers": [{**SHARED, "user": "me"}]},
        {"ports": "40000"},
        {"ports": "40000-"},
        {"ports": "41000-40000"},
        {"ports": "1000-1023"},
        {"ports": "40000-99999"},
        {"public_address": "example.com"},
        {"gather_timeout_s": 0},
        {"credential_ttl_s": 1},
    ],
)
def test_wrong_settings_are_refused(table: dict[str, Any]) -> None:
    with pytest.raises((ConfigError, msgspec.ValidationError)) as refused:
        ice(**table)
    assert "n0rth" not in str(refused.value)


def test_a_port_range_needs_the_fast_path() -> None:
    assert ice(fast_path=False).as_settings().wants_fast_path is False
    assert IceConfig().as_settings().wants_fast_path is True
    with pytest.raises(ConfigError, match=r"ice\.ports: needs ice\.fast_path"):
        ice(fast_path=False, ports="40000-40999").as_settings()


def test_relay_only_needs_a_relay() -> None:
    config = ice(relay_only=True, servers=[{"urls": ["stun:a.example"]}])
    with pytest.raises(ConfigError, match="relay_only"):
        config.as_settings()


def test_no_secret_is_shown() -> None:
    config = ice(servers=[SHARED, {"urls": [TURN], "username": "me", "password": "n0rth"}])
    assert "n0rth" not in repr(config)
    assert "turn.example" in repr(config)
