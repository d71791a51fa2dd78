"""Section `[devices]`: the device registry."""

from datetime import timedelta
from typing import Annotated, Literal

from msgspec import Meta

from devices.fleet.pairing import ApprovalRule, RegistrySettings
from server.config.types import Section
from server.net.allowlist import networks_of


class DevicesConfig(Section, frozen=True):
    """Settings for approving new devices, their keys and the database."""

    approval: Annotated[
        Literal["ask", "networks"],
        Meta(
            description=(
                "Approval of new devices. ask: the user enters the device's code on the page"
                " or with `earshot devices pair`. networks: devices in devices.networks are also"
                " approved automatically. Programs on this machine that need no key need no"
                " approval either."
            )
        ),
    ] = "ask"
    networks: Annotated[
        tuple[str, ...],
        Meta(
            title="list of lan or networks like 192.168.1.0/24",
            description=(
                "Networks whose devices are approved automatically if devices.approval is"
                " networks. lan means every private network."
            ),
        ),
    ] = ("lan",)
    database: Annotated[
        str,
        Meta(
            description=(
                "SQLAlchemy URL of the database, like postgresql://user@host/earshot (the password"
                " may be in PGPASSWORD or a passfile). Empty: a SQLite file in state_dir."
            )
        ),
    ] = ""
    token_days: Annotated[
        int, Meta(ge=1, le=3650, description="Days for which the key of a device is valid.")
    ] = 365
    new_days: Annotated[
        int,
        Meta(
            ge=1,
            le=365,
            description=(
                "Days after which a device that was never approved is deleted if it does not"
                " connect again."
            ),
        ),
    ] = 7

    def __post_init__(self) -> None:
        networks_of(self.networks, "devices.networks")

    def as_settings(self, *, trusts_this_machine: bool) -> RegistrySettings:
        """Returns the settings in the registry's form."""
        networks = self.networks if self.approval == "networks" else ()
        return RegistrySettings(
            rule=ApprovalRule(
                networks_of(networks, "devices.networks"), trusts_this_machine=trusts_this_machine
            ),
            token_life=timedelta(days=self.token_days),
            new_life=timedelta(days=self.new_days),
        )
