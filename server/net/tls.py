"""Sets up HTTPS. `auto` makes a self-signed certificate, about which a browser warns the user once.
Browsers allow the microphone only over HTTPS, except on this machine."""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from core.errors import ConfigError
from core.net.ip_addresses import IpAddress
from server.runtime.state_dir import TLS_FILE, write_private

LIFETIME = timedelta(days=397)
"Lifetime of our own certificate: the longest that browsers accept from public authorities."
RENEW_BEFORE = timedelta(days=14)
"Remaining lifetime below which our certificate is replaced at the next start."
CLOCK_SKEW = timedelta(hours=1)
"""Time by which our own certificate is dated back: the clock of a phone that has just been switched
on may be behind."""


@dataclass(frozen=True, slots=True)
class TlsContext:
    """TLS context of a listener, with the fingerprint of its certificate."""

    context: ssl.SSLContext
    fingerprint: str
    "SHA-256 of the certificate in the form in which browsers show it."


def open_tls(
    setting: str, folder: Path, names: Sequence[str], addresses: Sequence[IpAddress], now: datetime
) -> TlsContext | None:
    """Opens TLS as the setting `server.tls` asks: `off`, `auto` or `CERT:KEY`. `folder`: holds our
    own certificate. `names`, `addresses`: what our own certificate must cover. `now`: decides
    whether it must be renewed. Returns None for `off`. Raises ConfigError for unusable files."""
    if setting == "off":
        return None
    if setting == "auto":
        file = folder / TLS_FILE
        if not _is_usable(file, names, addresses, now):
            write_private(file, _make_certificate(names, addresses, now))
        return _load_context(file, None)
    certificate, _, key = setting.partition(":")
    return _load_context(Path(certificate), Path(key))


def _load_context(certificate: Path, key: Path | None) -> TlsContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key)
        leaf = x509.load_pem_x509_certificates(certificate.read_bytes())[0]
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        files = f"{certificate}:{key}" if key else str(certificate)
        raise ConfigError(f"config.server.tls: {files}: {error}") from error
    return TlsContext(context, leaf.fingerprint(hashes.SHA256()).hex(":").upper())


def _is_usable(
    file: Path, names: Sequence[str], addresses: Sequence[IpAddress], now: datetime
) -> bool:
    """Returns True if our certificate exists, is valid long enough and covers all names and
    addresses."""
    try:
        certificate = x509.load_pem_x509_certificate(file.read_bytes())
        alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (OSError, ValueError, x509.ExtensionNotFound):
        return False
    known_names = set(alternative.value.get_values_for_type(x509.DNSName))
    known_addresses = set(alternative.value.get_values_for_type(x509.IPAddress))
    return (
        certificate.not_valid_after_utc - now > RENEW_BEFORE
        and certificate.not_valid_before_utc <= now
        and known_names >= set(_dns_names(names))
        and known_addresses >= set(addresses)
    )


def _dns_names(names: Sequence[str]) -> list[str]:
    """Returns the names that a certificate can carry: ASCII, at most 64 characters each."""
    return list(
        dict.fromkeys(
            ["localhost", *(name for name in names if name.isascii() and len(name) <= 64)]
        )
    )


def _make_certificate(names: Sequence[str], addresses: Sequence[IpAddress], now: datetime) -> bytes:
    """Returns a new self-signed certificate and its key in one PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Earshot")])
    loopback = (ip_address("127.0.0.1"), ip_address("::1"))
    alternatives: list[x509.GeneralName] = [
        x509.DNSName(dns_name) for dns_name in _dns_names(names)
    ]
    alternatives += [x509.IPAddress(address) for address in dict.fromkeys((*loopback, *addresses))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
