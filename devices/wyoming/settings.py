"""Settings of the Wyoming door. The configuration imports them without the door."""

from dataclasses import dataclass

from core.net.ip_addresses import IpNetwork


@dataclass(frozen=True, slots=True, kw_only=True)
class WyomingSettings:
    """Settings of the Wyoming door."""

    networks: tuple[IpNetwork, ...]
    "Networks whose connections are accepted."
    max_connections: int
    trusts_this_machine: bool = True
    "False: a client on this machine is a device like others, which a person approves."
