"""Settings of KServe's doors."""

from dataclasses import dataclass

from core.net.ip_addresses import TrustedNetworks


@dataclass(frozen=True, slots=True)
class KserveSettings(TrustedNetworks):
    """Access and limits. The trusted networks are there because few clients can send a key."""

    max_message_bytes: int = 128 * 2**20
    "Largest request in bytes."
