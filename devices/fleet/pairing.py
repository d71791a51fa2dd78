"""Approval of devices: by their network, or by a code that the device shows and a person types."""

import secrets
from collections import OrderedDict, deque
from collections.abc import Container
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from core.errors import Conflict, NotFound, OverloadedError, RequestError
from core.net.ip_addresses import IpNetwork, is_among, peer_address
from devices.fleet.directory import DeviceKind

CODE_DIGITS = 6

CODE_LIFE_S = 600.0
"Life of a code, in seconds. Afterwards the device shows a new code at its next contact."

SHOWS_CODE: Container[DeviceKind] = frozenset({"xiaozhi"})
"Kinds whose protocol can show or speak a code; other kinds are approved without one."

MAX_WRONG_GUESSES = 5
"""Limit of wrong codes in a minute, from all clients together. So a client can try fifty of a
million codes during the ten minutes of one code."""

GUESS_WINDOW_S = 60.0
"Time in which the wrong codes are counted."

MAX_REMEMBERED = 64
"""Number of used codes that are remembered, to report "used" instead of "unknown"."""


@dataclass(frozen=True, slots=True)
class ApprovalRule:
    """Rule that says which devices are approved without a person."""

    networks: tuple[IpNetwork, ...] = ()
    "Networks whose devices are approved, in addition to this machine."
    trusts_this_machine: bool = True
    "False: connections from this machine may come from a proxy."

    def approves(self, address: str) -> bool:
        """Returns True if a device at this IP address is approved. False for text that is no
        address."""
        found = peer_address(address)
        if found is None or found.is_loopback:
            return found is not None and self.trusts_this_machine
        return is_among(found, self.networks)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """Settings of the device registry."""

    rule: ApprovalRule = field(default_factory=ApprovalRule)
    "Rule for approval without a person."
    token_life: timedelta = timedelta(days=365)
    "Life of a key of a device."
    new_life: timedelta = timedelta(days=7)
    "Time for which an unapproved device is kept after its last contact."


def new_code() -> str:
    """Returns six random digits."""
    return f"{secrets.randbelow(10**CODE_DIGITS):0{CODE_DIGITS}d}"


def read_code(text: str) -> str:
    """Returns the digits of a code as people type it (`123 456`, `123-456`). Raises
    RequestError."""
    digits = "".join(char for char in text if char not in " -")
    if len(digits) != CODE_DIGITS or not (digits.isascii() and digits.isdigit()):
        raise RequestError(
            f"code must be the {CODE_DIGITS} digits that the device shows",
            code="invalid_value",
            param="code",
        )
    return digits


def is_code_expired(expires: datetime | None, now: datetime) -> bool:
    """Returns True if the code is no longer valid at `now`, or if there is none (`expires` is
    None)."""
    return expires is None or expires <= now


def check_shown(shown: str, expires: datetime | None, typed: str, now: datetime) -> None:
    """Checks that the person who approves a device by its id saw the code that this device shows.

    Another device may have taken its place meanwhile. shown: the code that the device shows; typed:
    the code that the person typed. Empty: none. Raises Conflict pairing_code_needed,
    pairing_code_unknown or pairing_code_expired.
    """
    if shown and not typed:
        raise Conflict(
            f"the device shows a code of {CODE_DIGITS} digits; approve it with that code",
            code="pairing_code_needed",
            param="code",
        )
    if typed != shown:
        raise Conflict(
            "the device shows another code; compare the code with the one that it shows now",
            code="pairing_code_unknown",
            param="code",
        )
    if shown and is_code_expired(expires, now):
        raise _expired()


def _expired() -> Conflict:
    return Conflict(
        "this code has expired; the device shows a new one at its next contact",
        code="pairing_code_expired",
        param="code",
    )


class PairingAttempts:
    """Counter of wrong codes, which also knows the used codes."""

    def __init__(self) -> None:
        self._attempts: deque[float] = deque(maxlen=MAX_WRONG_GUESSES)
        self._used_codes: OrderedDict[str, None] = OrderedDict()

    def begin(self, now: float) -> None:
        """Counts an attempt as wrong until `record_success` is called, so that parallel attempts
        count too.

        now: monotonic seconds. Raises OverloadedError too_many_guesses.
        """
        if len(self._attempts) == MAX_WRONG_GUESSES and now - self._attempts[0] < GUESS_WINDOW_S:
            wait_s = int(GUESS_WINDOW_S - (now - self._attempts[0])) + 1
            raise OverloadedError(
                f"{MAX_WRONG_GUESSES} wrong codes within a minute; try again in {wait_s} s",
                retry_after_s=wait_s,
                code="too_many_guesses",
            )
        self._attempts.append(now)

    def record_success(self, code: str) -> None:
        """Takes the last attempt back from the count and remembers the code as used."""
        self._attempts.pop()
        self._used_codes[code] = None
        if len(self._used_codes) > MAX_REMEMBERED:
            self._used_codes.popitem(last=False)

    def wrong_code_error(self, code: str, *, is_expired: bool) -> RequestError:
        """Returns the error to raise for a wrong code."""
        if is_expired:
            return _expired()
        if code in self._used_codes:
            return Conflict(
                "this code was used already; it approves one device, once",
                code="pairing_code_used",
                param="code",
            )
        return NotFound(
            "no device waits with this code; enter the code that it shows now",
            code="pairing_code_unknown",
            param="code",
        )
