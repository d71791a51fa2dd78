"""Explains why a DTLS handshake failed, and what helps. aiortc itself does not report it."""

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.x509 import Certificate

GNUTLS_CURVE = "secp224r1"
"Curve of the certificates that FFmpeg makes where it is built with GnuTLS."

CURVES = ("secp256r1", "secp384r1", "secp521r1")
"Curves of certificates that OpenSSL accepts by default. Browsers use the first."

HELP = (
    "FFmpeg built with GnuTLS makes a certificate on the curve secp224r1, which OpenSSL never"
    " accepts. Give it another one (-cert_file and -key_file, made by `openssl req -x509 -newkey ec"
    " -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=whip -keyout key.pem -out cert.pem`),"
    " or use a build of FFmpeg with OpenSSL"
)
"Advice for the log."


def curve_of(certificate: Certificate | None) -> str:
    """Returns the curve of a certificate's key; empty if there is no certificate, or none with a
    curve."""
    key = certificate and certificate.public_key()
    return key.curve.name if isinstance(key, EllipticCurvePublicKey) else ""


def describe_failure(curve: str) -> str:
    """Returns one line for the log. `curve`: the result of `curve_of`."""
    if curve == GNUTLS_CURVE:
        return f"the DTLS handshake failed because of the sender's certificate on {curve}: {HELP}"
    if curve and curve not in CURVES:
        allowed = ", ".join(CURVES)
        return (
            f"the DTLS handshake failed because of the sender's certificate on {curve}; accepted"
            f" curves: {allowed}"
        )
    return f"the DTLS handshake failed; the usual cause is the sender's certificate: {HELP}"
