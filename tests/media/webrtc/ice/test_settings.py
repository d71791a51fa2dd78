"""The settings of ICE, and TURN credentials for one session."""

import pytest
from aiortc import RTCIceTransportPolicy

from core.errors import ConfigError
from media.webrtc.ice.settings import IceServer, IceSettings, IceUrl, PortRange

TURN = ("turn:turn.example", "turns:turn.example")


def test_no_ice_server_is_used_by_default() -> None:
    assert IceSettings().minted() == ()
    assert IceSettings().configuration().iceServers == []


@pytest.mark.parametrize(
    ("url", "way"),
    [
        ("stun:a.example", IceUrl("stun", "a.example", 3478, "udp")),
        ("turn:192.0.2.1:3479", IceUrl("turn", "192.0.2.1", 3479, "udp")),
        ("turn:a.example?transport=tcp", IceUrl("turn", "a.example", 3478, "tcp")),
        ("turns:a.example", IceUrl("turns", "a.example", 5349, "tcp")),
        ("turns:[2001:db8::1]:443?transport=tcp", IceUrl("turns", "2001:db8::1", 443, "tcp")),
    ],
)
def test_urls_are_parsed(url: str, way: IceUrl) -> None:
    assert IceUrl.parse(url) == way


@pytest.mark.parametrize(
    "url",
    [
        "",
        "turn:",
        "http://a.example",
        "stun:a.example?transport=udp",
        "stuns:a.example",
        "turn:a.example:0",
        "turn:a.example:65536",
        "turn:a.example?transport=sctp",
        "turns:a.example?transport=udp",
        "turn:user@a.example",
        "turn:a.example\r\nX: y",
        "turn:a.example>; rel=x",
    ],
)
def test_bad_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        IceUrl.parse(url)


def test_credentials_equal_those_of_coturn() -> None:
    """The expected credential is from `openssl dgst -sha1 -hmac north -binary | base64`."""
    settings = IceSettings(
        (IceServer(("stun:turn.example",)), IceServer(TURN, shared_secret="north")),
        credential_ttl_s=1_000,
        wall_s=lambda: 1_799_999_000.9,
    )
    stun, turn = settings.minted("rtc_1")
    assert stun == settings.servers[0]
    assert (turn.urls, turn.username) == (TURN, "1800000000:rtc_1")
    assert turn.credential == "WEZFEnb9isotRMciBdD3HxLOcks="
    assert turn.shared_secret is None


def test_each_session_has_its_own_credentials() -> None:
    settings = IceSettings((IceServer(TURN, shared_secret="north"),), wall_s=lambda: 0.0)
    assert settings.minted()[0].credential != settings.minted()[0].credential


def test_a_shared_secret_without_a_clock_is_refused() -> None:
    with pytest.raises(ConfigError):
        IceSettings((IceServer(TURN, shared_secret="north"),)).minted()


def test_no_secret_is_in_a_repr() -> None:
    servers = (IceServer(TURN, "user", "s3cret"), IceServer(TURN, shared_secret="s3cret"))
    settings = IceSettings(servers, wall_s=lambda: 0.0)
    assert "s3cret" not in repr(settings)
    minted = settings.minted()[1].credential
    assert minted is not None
    assert minted not in repr(settings.minted())


@pytest.mark.parametrize(("first", "last"), [(0, 10), (80, 90), (2000, 1999), (65000, 65536)])
def test_bad_port_ranges_are_refused(first: int, last: int) -> None:
    with pytest.raises(ConfigError):
        PortRange(first, last)


def test_the_public_path_gives_aiortc_the_servers_it_can_parse() -> None:
    servers = (
        IceServer(("stun:a.example",)),
        IceServer(("turn:turn.example", "turn:[::1]"), "me", "pass"),
    )
    assert IceSettings(servers).configuration().iceServers == []
    stun, turn = IceSettings(servers).configuration(names_servers=True).iceServers or []
    assert stun.urls == ["stun:a.example"]
    assert (turn.urls, turn.username, turn.credential) == (["turn:turn.example"], "me", "pass")


def test_relay_only_is_passed_to_aiortc() -> None:
    configured = IceSettings(is_relay_only=True).configuration()
    assert configured.iceTransportPolicy is RTCIceTransportPolicy.RELAY
