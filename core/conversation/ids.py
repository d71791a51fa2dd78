"""Identifiers as they appear on the wire: a prefix for the kind, then 96 random bits.

Where several gateways share an address, an id that a client sends in later requests also names the
gateway that made it: `rtc_12x3f9c...` is a call of gateway 12. So the request finds its way there.
Where servers of several machines work together, it names the machine, too: `rtc_71m12x3f9c...` is a
call of gateway 12 on machine 71; gateway 0 means that the machine has only one.
"""

import re
import secrets

ROUTED_PREFIXES = frozenset({"conv", "rtc", "sess", "whip"})
"""Prefixes of ids that clients send in later requests: conversations, calls, sessions,
publications."""

_MARKED = re.compile(
    r"[a-z]+_(?:(?P<machine>[1-9][0-9]{0,8})m)?(?P<gateway>[0-9]{1,9})x[0-9a-f]{24,64}"
)
"Id that names a gateway. An x is no hexadecimal digit, so no other id looks like it."


MACHINE_NUMBERS = 10**9
"""A server draws the number of its machine below this at each start: of 100 servers, two have the
same once in 200 000 times."""


class _Mark:
    """Holds the part of new ids that names this process: the number of its machine and an m, the
    number of its gateway and an x. It is empty where there is one process."""

    text = ""


def new_id(prefix: str) -> str:
    """Returns a new id: `new_id("item")` -> `item_3f9c...`. Ids cannot be guessed, because a call's
    id alone allows to hang up."""
    mark = _Mark.text if prefix in ROUTED_PREFIXES else ""
    return f"{prefix}_{mark}{secrets.token_hex(12)}"


def new_secret(size_bytes: int) -> str:
    """Returns a secret with `size_bytes` random bytes. Like an id, it names the gateway that
    knows it."""
    return _Mark.text + secrets.token_hex(size_bytes)


def mark_ids(gateway: int, machine: int = 0) -> None:
    """Lets the ids that this process makes from now on name its gateway, and its machine unless
    that is 0. Both 0: they name none."""
    place = f"{machine}m" if machine else ""
    _Mark.text = f"{place}{gateway}x" if gateway or machine else ""


def draw_machine_number() -> int:
    """Returns a random number for this machine, from 1."""
    return 1 + secrets.randbelow(MACHINE_NUMBERS - 1)


def gateway_of(name: str) -> int | None:
    """Returns the number of the gateway that an id or a secret names; None: it names none."""
    match = _MARKED.fullmatch(name)
    return (int(match["gateway"]) or None) if match else None


def machine_of(name: str) -> int | None:
    """Returns the number of the machine that an id or a secret names; None: it names none."""
    match = _MARKED.fullmatch(name)
    return int(match["machine"]) if match and match["machine"] else None
