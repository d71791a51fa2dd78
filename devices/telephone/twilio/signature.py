"""Proofs that a request is Twilio's, and that a stream belongs to a call that was let in. Pure.

Source: Twilio's page "Secure webhooks". `X-Twilio-Signature` is the HMAC-SHA1 of the URL, followed
by the sorted form parameters, with the auth token of the account; in Base64.
"""

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import urlsplit

SIGNATURE_HEADER = "X-Twilio-Signature"

STREAM_VALID_S = 60
"""Time after the answer to the webhook in which its stream may start. Twilio opens the stream at
once; a call may be answered a little later."""

_PORTS = {"https": 443, "wss": 443}


def sign(auth_token: str, url: str, parameters: Iterable[tuple[str, str]] = ()) -> str:
    """Returns Twilio's signature of a request. `parameters`: those of the form."""
    # Twilio sorts by name; a name that comes twice is followed by its sorted different values.
    text = url + "".join(name + value for name, value in sorted(set(parameters)))
    digest = hmac.new(auth_token.encode(), text.encode("utf-8", "replace"), hashlib.sha1).digest()
    return b64encode(digest).decode()


def is_signed(
    auth_token: str, signature: str, url: str, parameters: Sequence[tuple[str, str]] = ()
) -> bool:
    """Returns whether Twilio signed this request. Takes the same time for every wrong signature.

    A URL may have been signed with or without its port, and that of a stream with a slash at its
    end; each form is accepted, because each proves that its maker has the token.
    """
    given = signature.encode("utf-8", "replace")
    found = False
    for form in _forms_of(url):
        found |= hmac.compare_digest(sign(auth_token, form, parameters).encode(), given)
    return found


def prove_call(auth_token: str, call_sid: str, caller: str, until: int) -> str:
    """Returns the proof that Twilio named this caller of a call to us, for its stream.

    A signature of a stream is the same for every call, because it covers the URL alone. So the
    caller's number and the call are proven by this parameter of the stream. until: seconds of Unix
    time at which the proof ends.
    """
    text = "\n".join(("earshot stream", call_sid, caller, str(until)))
    return hmac.new(auth_token.encode(), text.encode(), hashlib.sha256).hexdigest()


def is_proven(
    auth_token: str, proof: str, call_sid: str, caller: str, until: str, now: float
) -> bool:
    """Returns whether the parameters of a stream are ours, and not too old. now: Unix time."""
    if not (until.isascii() and until.isdigit() and len(until) <= 12):
        return False
    expected = prove_call(auth_token, call_sid, caller, int(until))
    is_ours = hmac.compare_digest(expected.encode(), proof.encode("utf-8", "replace"))
    return is_ours and now <= int(until)


def _forms_of(url: str) -> Iterator[str]:
    """Yields the forms in which Twilio may have signed a URL."""
    parts = urlsplit(url)
    hosts = [parts.netloc]
    if (port := _PORTS.get(parts.scheme)) is not None:
        bare = parts.netloc.removesuffix(f":{port}")
        hosts = [bare, f"{bare}:{port}"] if parts.port in (None, port) else [parts.netloc]
    for host in hosts:
        form = parts._replace(netloc=host).geturl()
        yield form
        if parts.scheme == "wss":
            yield form.removesuffix("/") if form.endswith("/") else f"{form}/"
