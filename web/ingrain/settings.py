"""Settings of Ingrain's door."""

from dataclasses import dataclass

from core.net.ip_addresses import TrustedNetworks


@dataclass(frozen=True, slots=True)
class IngrainSettings(TrustedNetworks):
    """Access and downloads. The trusted networks are there because Ingrain's clients cannot send a
    key."""

    has_downloads: bool = False
    "True: loading a model that is not in the models folder downloads it."
