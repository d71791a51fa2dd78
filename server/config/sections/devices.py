"""Section `[devices]`: the device registry."""

from datetime import timedelta
from typing import Annotated, Literal

from msgspec import Meta

from devices.pairing import ApprovalRule, RegistrySettings
from server.config.types import Section
from server.net.allowlist import networks_of


class DevicesConfig(Section, frozen=True):
    """Settings for approving new devices, their keys and the database."""

    approval: Annotated[
        Literal["ask", "networks"],
        Meta(
            description=(
                "ask: a new device works when its code was typed on the page or with `earshot"
                " devices pair`; networks: also unasked if its address is in devices.networks. This"
                " machine's own programs need no approval where they need no key."
            )
        ),
    ] = "ask"
    networks: Annotated[
        tuple[str, ...],
        Meta(
            title="list of lan or networks like 192.168.1.0/24",
            description=(
                "Whose devices are approved unasked, with devices.approval = networks; lan is every"
                " private network."
            ),
        ),
    ] = ("lan",)
    database: Annotated[
        str,
        Meta(
            description=(
                "SQLAlchemy URL, as postgresql://user@host/earshot (its password also in"
                " PGPASSWORD or a passfile); empty: a SQLite file in state_dir."
            )
        ),
    ] = ""
    token_days: Annotated[
        int, Meta(ge=1, le=3650, description="How long a device's own key holds.")
    ] = 365
    new_days: Annotated[
        int,
        Meta(
            ge=1,
            le=365,
            description="A device that nobody approved is forgotten when it was not seen so long.",
        ),
    ] = 7

    def __post_init__(self) -> None:
        networks_of(self.networks, "devices.networks")

    def as_settings(self, *, trusts_this_machine: bool) -> RegistrySettings:
        """Returns the settings in the registry's form."""
        named = self.networks if self.approval == "networks" else ()
        return RegistrySettings(
            rule=ApprovalRule(
                networks_of(named, "devices.networks"), trusts_this_machine=trusts_this_machine
            ),
            token_life=timedelta(days=self.token_days),
            new_life=timedelta(days=self.new_days),
        )
