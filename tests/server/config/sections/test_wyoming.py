"""The table `[wyoming]`: which networks may connect."""

from ipaddress import ip_address

import msgspec
import pytest

from core.errors import ConfigError
from server.config.sections.wyoming import WyomingConfig


def lets_in(config: WyomingConfig, address: str) -> bool:
    return any(ip_address(address) in one for one in config.as_settings().networks)


def test_only_this_machine_is_allowed_by_default() -> None:
    usual = WyomingConfig()
    assert (usual.host, usual.port) == ("127.0.0.1", 10300)
    assert lets_in(usual, "127.0.0.1")
    assert lets_in(usual, "::1")
    assert not lets_in(usual, "192.168.1.7")


def test_lan_means_every_private_network_and_nothing_else() -> None:
    lan = WyomingConfig(networks=("lan",))
    assert all(map(lets_in, 3 * [lan], ("192.168.1.7", "10.9.8.7", "fd00::7")))
    assert not lets_in(lan, "203.0.113.7")
    one = WyomingConfig(networks=("192.168.1.0/24",))
    assert one.host == "0.0.0.0"
    assert lets_in(one, "192.168.1.7")
    assert not lets_in(one, "192.168.2.7")


def test_it_listens_on_the_addresses_that_the_networks_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both, four = WyomingConfig(networks=("lan",)), WyomingConfig(networks=("10.0.0.0/8",))
    for has_6, hosts in ((True, ["::", "0.0.0.0"]), (False, ["0.0.0.0", "0.0.0.0"])):
        monkeypatch.setattr("socket.has_dualstack_ipv6", lambda has_6=has_6: has_6)
        assert [both.host, four.host] == hosts


@pytest.mark.parametrize("wrong", ["home", "192.168.1.7/24", "300.1.1.1"])
def test_a_wrong_network_is_named(wrong: str) -> None:
    with pytest.raises((ConfigError, msgspec.ValidationError), match=r"wyoming\.networks"):
        WyomingConfig(networks=(wrong,))
