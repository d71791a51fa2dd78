"""The table `[machines]`: only a private address is a place for other servers."""

import pytest

from core.errors import ConfigError
from server.config.load import load


@pytest.mark.parametrize("host", ["10.0.0.5", "192.168.1.2", "172.16.0.1", "fd00::1", "127.0.0.1"])
def test_a_private_address_is_accepted(host: str) -> None:
    assert load({"EARSHOT_MACHINES__HOST": host}).config.machines.is_on


def test_without_an_address_a_server_works_alone() -> None:
    assert not load({}).config.machines.is_on


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("0.0.0.0", "not a private address"),
        ("::", "not a private address"),
        ("8.8.8.8", "not a private address"),
        ("a.example.org", "is no IP address"),
    ],
)
def test_any_other_address_is_refused(host: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"machines.host.*{why}"):
        load({"EARSHOT_MACHINES__HOST": host})


@pytest.mark.parametrize("url", ["10.0.0.5:8080", "ftp://a", "https://a/path"])
def test_a_url_has_a_scheme_and_no_path(url: str) -> None:
    with pytest.raises(ConfigError, match="MACHINES__URL: expected a URL"):
        load({"EARSHOT_MACHINES__URL": url})
