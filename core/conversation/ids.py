"""Identifiers as they appear on the wire: a prefix for the kind, then 96 random bits.

Where several gateways share an address, an id that a client sends in later requests also names the
gateway that made it: `rtc_12x3f9c...` is a call of gateway 12. So the request finds its way there.
"""

import re
import secrets

ROUTED_PREFIXES = frozenset({"conv", "rtc", "sess", "whip"})
"""Prefixes of ids that clients send in later requests: conversations, calls, sessions,
publications."""

_MARKED = re.compile(r"[a-z]+_(?P<gateway>[1-9][0-9]{0,8})x[0-9a-f]{24,64}")
"Id that names a gateway. An x is no hexadecimal digit, so no other id looks like it."


class _Mark:
    """Holds the part of new ids that names this process: the number of its gateway and an x. It is
    empty where there is one process."""

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


def mark_ids(gateway: int) -> None:
    """Lets the ids that this process makes from now on name its gateway. 0: they name none."""
    _Mark.text = f"{gateway}x" if gateway else ""


def gateway_of(name: str) -> int | None:
    """Returns the number of the gateway that an id or a secret names; None: it names none."""
    match = _MARKED.fullmatch(name)
    return int(match["gateway"]) if match else None
