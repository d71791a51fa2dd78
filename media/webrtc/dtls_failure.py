"""Says why a DTLS handshake failed, and what helps: aiortc itself tells nobody."""

from aiortc import RTCDtlsTransport
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

GNUTLS = "secp224r1"
"The curve of the certificates that FFmpeg makes where it is built with GnuTLS."

CURVES = ("secp256r1", "secp384r1", "secp521r1")
"Of certificates that OpenSSL takes as it is; the first is what browsers make."

HELP = (
    "FFmpeg built with GnuTLS makes a certificate on secp224r1 by itself, which OpenSSL takes from"
    " nobody: give it one of its own (-cert_file and -key_file, made by `openssl req -x509 -newkey"
    " ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=whip -keyout key.pem -out"
    " cert.pem`), or take a build of FFmpeg with OpenSSL"
)


def curve_of(dtls: RTCDtlsTransport) -> str:
    """The curve of the other side's certificate; empty: it sent none, or none of a curve."""
    connection = getattr(dtls, "_ssl", None)
    certificate = connection and connection.get_peer_certificate(as_cryptography=True)
    key = certificate and certificate.public_key()
    return key.curve.name if isinstance(key, EllipticCurvePublicKey) else ""


def describe_failure(curve: str) -> str:
    """One line for the log. `curve`: as `curve_of` says it."""
    if curve == GNUTLS:
        return f"the DTLS handshake failed over the sender's certificate on {curve}: {HELP}"
    if curve and curve not in CURVES:
        allowed = ", ".join(CURVES)
        return (
            f"the DTLS handshake failed over the sender's certificate on {curve}; taken are those"
            f" on {allowed}"
        )
    return f"the DTLS handshake failed; the usual cause is the sender's certificate: {HELP}"
