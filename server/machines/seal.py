"""Authentication between the servers of several machines, with a key that they share. No I/O.

Each request between servers carries one header with facts about it, a time, a number that is used
once, and their HMAC-SHA256. TLS with a certificate whose fingerprint the receiver has announced
protects the rest. A redirected client carries a ticket in the same form.
"""

import hmac
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from hashlib import sha256

from core.errors import Forbidden

MAX_SKEW_S = 30.0
"""Largest difference in seconds between the time of a request and ours. Both are the database's
time (`MachineTable.shared_time_s`), so the clocks of the machines do not matter; a redirected
client may take some seconds to connect."""

MAX_NONCES = 100_000
"""Numbers that are remembered for MAX_SKEW_S at both ends: more than 1600 requests a second from
other servers are refused. Each takes some 200 bytes."""

MIN_KEY_CHARS = 32
"Fewest characters of the shared key: 128 bits if they are hexadecimal digits."

HEADER = "Earshot-Machine"
"Header of a request between servers of several machines."

TICKET = "earshot_ticket"
"Query parameter of a redirected request."


@dataclass(frozen=True, slots=True)
class MachineEnvelope:
    """Facts about a request that the server which passes it on adds to it."""

    sender: int
    "Number of the server that sent it."
    scheme: str
    "Scheme that the client used."
    remote: str
    "Address of the client."


@dataclass(frozen=True, slots=True)
class SealedRequest:
    """The one request for which a seal is made. The seal is valid for no other request."""

    method: str
    target: str
    "Path and query as they are sent, without a ticket."
    receiver: str
    "Fingerprint of the receiver's certificate between servers."


@dataclass(slots=True)
class SharedKey:
    """Makes and checks seals."""

    _key: bytes = field(repr=False)
    _seen: OrderedDict[str, float] = field(default_factory=OrderedDict, repr=False)
    "Numbers that were used, with the time at which they are forgotten."

    def seal(self, envelope: MachineEnvelope, request: SealedRequest, now_s: float) -> str:
        """Returns the header of a request. `now_s`: time of the database."""
        words = [
            str(envelope.sender),
            envelope.scheme,
            envelope.remote or "-",
            f"{now_s:.3f}",
            secrets.token_hex(12),
        ]
        return " ".join([*words, self._mac(words, request)])

    def open(self, sealed: str, request: SealedRequest, now_s: float) -> MachineEnvelope:
        """Returns what another server has sealed for this request. `now_s`: time of the database.
        Raises Forbidden machine_not_authenticated."""
        *words, mac = sealed.split(" ")
        if len(words) != 5 or not hmac.compare_digest(
            mac.encode("utf-8", "replace"), self._mac(words, request).encode()
        ):
            raise _refusal("it is not signed with the key of machines.key_file")
        sender, scheme, remote, time_s, nonce = words
        if abs(float(time_s) - now_s) > MAX_SKEW_S:
            raise _refusal(f"it is more than {MAX_SKEW_S:.0f} s old, or early")
        self._use(nonce, now_s)
        return MachineEnvelope(int(sender), scheme, "" if remote == "-" else remote)

    def _use(self, nonce: str, now_s: float) -> None:
        while self._seen and next(iter(self._seen.values())) < now_s:
            self._seen.popitem(last=False)
        if nonce in self._seen:
            raise _refusal("it was sent before")
        if len(self._seen) >= MAX_NONCES:
            raise _refusal(f"more than {MAX_NONCES} requests came in {2 * MAX_SKEW_S:.0f} s")
        self._seen[nonce] = now_s + 2 * MAX_SKEW_S

    def _mac(self, words: list[str], request: SealedRequest) -> str:
        parts = [*words, request.method, request.target, request.receiver]
        text = "\n".join(parts).encode("utf-8", "replace")
        return hmac.new(self._key, text, sha256).hexdigest()


def _refusal(why: str) -> Forbidden:
    return Forbidden(
        f"this request of another machine is refused: {why}", code="machine_not_authenticated"
    )
