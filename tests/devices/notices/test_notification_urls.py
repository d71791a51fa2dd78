"""Which URLs a device may fetch for the sound of a notification."""

import asyncio
from collections.abc import Sequence
from ipaddress import ip_address

import pytest

from core.errors import RequestError
from core.http.fetch_policy import is_forbidden
from core.net.ip_addresses import IpAddress
from devices.notices.notification_urls import AudioUrlPolicy

OWN = "http://192.168.1.2:8502"
NAMES = {
    "nas.lan": ["192.168.1.9"],
    "evil.lan": ["192.168.1.9", "169.254.169.254"],
    "self.lan": ["127.0.0.1"],
    "mapped.lan": ["::ffff:127.0.0.1"],
    "radio.example": ["203.0.113.7"],
}


async def resolve(host: str, port: int) -> Sequence[IpAddress]:
    if host not in NAMES:
        raise OSError("unknown")
    return [ip_address(one) for one in NAMES[host]]


def check(url: str) -> None:
    hosts = ("nas.lan", "evil.lan", "self.lan", "mapped.lan", "gone.lan", "radio.example:8000")
    asyncio.run(AudioUrlPolicy(hosts, resolve).check(url, OWN))


@pytest.mark.parametrize(
    "url",
    [
        f"{OWN}/api/tts?text=Tea",
        f"{OWN}/api/asset?type=audio&asset=bell.wav",
        "HTTP://192.168.1.2:8502/x",
        "http://nas.lan/bell.flac",
        "https://NAS.lan:8443/bell.flac",
        "http://radio.example:8000/",
    ],
)
def test_this_server_and_named_hosts_are_allowed(url: str) -> None:
    check(url)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://192.168.1.1/admin", "neither"),
        ("http://127.0.0.1:8502/", "neither"),
        ("http://192.168.1.2:8503/", "neither"),
        ("http://192.168.1.2:8502@evil.example/", "user"),
        ("http://nas.lan@evil.example/", "user"),
        ("http://nas.lan:pass@nas.lan/", "user"),
        ("http://nas.lan.evil.example/", "neither"),
        ("http://radio.example/", "neither"),
        ("http://2130706433/", "neither"),
        ("http://[::1]/", "neither"),
        ("http://evil.lan/", "metadata"),
        ("http://self.lan/", "loopback"),
        ("http://mapped.lan/", "loopback"),
        ("http://gone.lan/", "cannot be found"),
        ("file:///etc/passwd", "only http"),
        ("spiffs://spiffs/user/audio/success.wav", "only http"),
        ("ftp://nas.lan/", "only http"),
        ("//nas.lan/", "only http"),
        ("http:///x", "must have a host"),
        ("http://nas.lan:99999/", "cannot be read"),
        ("http://[nas.lan/", "cannot be read"),
        ("http://nas.lan/ HTTP/1.1\r\nX: y", "printable"),
        ("http://nas.lan\\@evil.example/", "printable"),
        ("http://nas.lan/" + "x" * 1024, "printable"),
        ("", "printable"),
    ],
)
def test_any_other_host_is_refused(url: str, why: str) -> None:
    with pytest.raises(RequestError, match=why) as error:
        check(url)
    assert error.value.code == "audio_url_refused"
    assert "pass" not in str(error.value)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("192.168.1.9", False),
        ("fd12::1", False),
        ("8.8.8.8", False),
        ("127.9.9.9", True),
        ("169.254.0.1", True),
        ("fd00:ec2::254", True),
        ("fe80::1", True),
        ("0.0.0.0", True),
        ("::", True),
        ("224.0.0.1", True),
        ("255.255.255.255", True),
        ("::ffff:169.254.169.254", True),
        ("64:ff9b::7f00:1", True),
        ("64:ff9b::808:808", False),
        ("2002:7f00:1::", True),
    ],
)
def test_local_and_reserved_addresses_are_forbidden(address: str, *, expected: bool) -> None:
    assert is_forbidden(ip_address(address)) == expected


def test_numeric_hosts_are_normalised_before_the_check() -> None:
    for host in ("2130706433", "0x7f.1", "127.1"):
        with pytest.raises(RequestError, match=r"loopback|cannot be found"):
            asyncio.run(AudioUrlPolicy((host,)).check(f"http://{host}/", OWN))
