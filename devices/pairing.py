"""How a device becomes approved: by its network, or by a code that it shows and a person types."""

import secrets
from collections import OrderedDict, deque
from collections.abc import Container
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from core.errors import Conflict, NotFound, OverloadedError, RequestError
from devices.directory import DeviceKind
from devices.ip_allowlist import IpNetwork, address_of, is_among

CODE_DIGITS = 6

CODE_LIFE_S = 600.0
"How long a code holds; the device shows a new one afterwards, at its next contact."

SHOWS_CODE: Container[DeviceKind] = frozenset({"xiaozhi"})
"Kinds whose protocol has a code that is shown or spoken; others are approved without one."

MAX_WRONG_GUESSES = 5
"Within a minute, of everybody: so a code that holds ten minutes meets fifty guesses of a million."

GUESS_WINDOW_S = 60.0

MAX_REMEMBERED = 64
"Used codes, to say that rather than that they are unknown."


@dataclass(frozen=True, slots=True)
class ApprovalRule:
    """Who needs no person's approval."""

    networks: tuple[IpNetwork, ...] = ()
    "Beside this machine itself."
    trusts_this_machine: bool = True
    "False: a proxy may be what comes from there."

    def approves(self, address: str) -> bool:
        """Of a connection's address; never of what is none."""
        found = address_of(address)
        if found is None or found.is_loopback:
            return found is not None and self.trusts_this_machine
        return is_among(found, self.networks)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    rule: ApprovalRule = field(default_factory=ApprovalRule)
    "Who is approved unasked."
    token_life: timedelta = timedelta(days=365)
    new_life: timedelta = timedelta(days=7)
    "How long a device that nobody approved is kept after it was last seen."


def new_code() -> str:
    """Six random digits."""
    return f"{secrets.randbelow(10**CODE_DIGITS):0{CODE_DIGITS}d}"


def read_code(text: str) -> str:
    """A code as people type it (`123 456`, `123-456`). Raises RequestError."""
    digits = "".join(one for one in text if one not in " -")
    if len(digits) != CODE_DIGITS or not (digits.isascii() and digits.isdigit()):
        raise RequestError(
            f"code must be the {CODE_DIGITS} digits that the device shows",
            code="invalid_value",
            param="code",
        )
    return digits


def is_code_expired(moment: datetime | None, now: datetime) -> bool:
    """Whether a code that holds until then, if there is one, holds no more."""
    return moment is None or moment <= now


def check_shown(shown: str, expires: datetime | None, said: str, now: datetime) -> None:
    """Whether who approves a device by its id saw what this one shows: another may have come in its
    place since. Empty: nothing. Raises Conflict pairing_code_needed, _unknown or _expired."""
    if shown and not said:
        raise Conflict(
            f"it shows {CODE_DIGITS} digits; compare them, and approve it with them",
            code="pairing_code_needed",
            param="code",
        )
    if said != shown:
        raise Conflict(
            "it does not wait under this code; compare it with what the device shows now",
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
    """Counts wrong codes, and says what became of a wrong one."""

    def __init__(self) -> None:
        self._wrong: deque[float] = deque(maxlen=MAX_WRONG_GUESSES)
        self._used: OrderedDict[str, None] = OrderedDict()

    def begin(self, now: float) -> None:
        """Every try counts as wrong until it is right: many at once are many. `now`: monotonic
        seconds. Raises Overloaded too_many_guesses."""
        if len(self._wrong) == MAX_WRONG_GUESSES and now - self._wrong[0] < GUESS_WINDOW_S:
            wait_s = int(GUESS_WINDOW_S - (now - self._wrong[0])) + 1
            raise OverloadedError(
                f"{MAX_WRONG_GUESSES} wrong codes within a minute; try again in {wait_s} s",
                retry_after_s=wait_s,
                code="too_many_guesses",
            )
        self._wrong.append(now)

    def right(self, code: str) -> None:
        self._wrong.pop()
        self._used[code] = None
        if len(self._used) > MAX_REMEMBERED:
            self._used.popitem(last=False)

    def wrong(self, code: str, *, is_expired: bool) -> RequestError:
        """The error to raise."""
        if is_expired:
            return _expired()
        if code in self._used:
            return Conflict(
                "this code was used already; it approves one device, once",
                code="pairing_code_used",
                param="code",
            )
        return NotFound(
            "no device waits under this code; type the one that it shows now",
            code="pairing_code_unknown",
            param="code",
        )
