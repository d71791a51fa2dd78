"""What the door is told. Apart from it: the configuration needs no server."""

from dataclasses import dataclass

from devices.ip_allowlist import IpNetwork


@dataclass(frozen=True, slots=True, kw_only=True)
class WyomingSettings:
    networks: tuple[IpNetwork, ...]
    "Whose connections are taken."
    max_connections: int
    trusts_this_machine: bool = True
    "False: who comes from there is a device like others, that a person approves."
