"""Which address a node of the cluster gets, and with which command line it starts."""

import argparse
from ipaddress import ip_address

import pytest

from core.errors import ConfigError
from core.net.ip_addresses import IpAddress
from server.commands.cluster.arguments import add_actions
from server.commands.cluster.command import node_address, node_command

PRIVATE, OTHER, PUBLIC = map(ip_address, ("10.0.0.5", "192.168.1.7", "8.8.8.8"))


def options_of(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_actions(parser)
    return parser.parse_args(words)


def test_the_only_private_address_is_used() -> None:
    assert node_address(None, [PRIVATE], is_shielded=False) == PRIVATE
    assert node_address(None, [PRIVATE, ip_address("fd00::2")], is_shielded=False) == PRIVATE
    assert node_address(None, [PRIVATE, PUBLIC], is_shielded=True) == PRIVATE


@pytest.mark.parametrize(
    ("wanted", "own", "message"),
    [
        (None, [PRIVATE, PUBLIC], "public address 8.8.8.8"),
        ("10.0.0.5", [PRIVATE, PUBLIC], "public address 8.8.8.8"),
        (None, [PRIVATE, OTHER], "say which address"),
        (None, [], "found: none"),
        ("127.0.0.1", [PRIVATE], "no private address"),
        ("0.0.0.0", [PRIVATE], "no private address"),
        ("8.8.8.8", [PRIVATE], "no private address"),
        ("head", [PRIVATE], "no private address"),
        ("10.0.0.9", [PRIVATE], "has no address 10.0.0.9"),
    ],
)
def test_other_addresses_are_refused(
    wanted: str | None, own: list[IpAddress], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        node_address(wanted, own, is_shielded=False)


def test_command_of_a_head_and_of_a_node() -> None:
    head = node_command(options_of("start", "--cpus", "2"), PRIVATE)
    assert {"--head", "--port=6399", "--include-dashboard=false", "--num-cpus=2"} <= {*head}
    assert {"--node-ip-address=10.0.0.5", "--object-store-memory=200000000"} <= {*head}
    node = node_command(options_of("join", "10.0.0.4:6399"), PRIVATE)
    assert "--address=10.0.0.4:6399" in node
    assert "--head" not in node


@pytest.mark.parametrize("words", [("--port", "0"), ("--object-store-mb", "10"), ("--cpus", "-1")])
def test_a_wrong_option_is_refused(words: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match=words[0]):
        node_command(options_of("start", *words), PRIVATE)
