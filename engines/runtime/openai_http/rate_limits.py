"""Reads the HTTP headers that report how much of a quota is left. Pure.

https://platform.openai.com/docs/guides/rate-limits#rate-limits-in-headers
"""

import re
from collections.abc import Mapping

from core.conversation.usage import RateLimit, RateLimits

QUOTAS = ("requests", "tokens")
"Quotas whose headers are read."

_COUNT = re.compile(r"[0-9]{1,15}")
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_PIECE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|us|d|h|m|s)")
_UNITS_S = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}


def read_rate_limits(headers: Mapping[str, str]) -> RateLimits | None:
    """Returns the limits in the headers; None if there are none. A limit is returned only if all
    three of its values are present and valid. `headers`: a mapping that ignores case."""
    limits = tuple(
        limit for limit in (_limit(headers, name) for name in QUOTAS) if limit is not None
    )
    return RateLimits(limits) if limits else None


def reset_s(header: str) -> float | None:
    """Returns the seconds that a reset header gives: `1s`, `6m0s`, `120ms`, `1h2m3.5s`, or a number
    without a unit. None for any other format, such as the dates of some services."""
    if _SECONDS.fullmatch(header):
        return float(header)
    pieces = _PIECE.findall(header)
    if not pieces or "".join(map("".join, pieces)) != header:
        return None
    return float(sum(float(number) * _UNITS_S[unit] for number, unit in pieces))


def _limit(headers: Mapping[str, str], name: str) -> RateLimit | None:
    limit, remaining, reset = (
        headers.get(f"x-ratelimit-{quantity}-{name}", "").strip()
        for quantity in ("limit", "remaining", "reset")
    )
    left_s = reset_s(reset)
    if left_s is None or not (_COUNT.fullmatch(limit) and _COUNT.fullmatch(remaining)):
        return None
    return RateLimit(name, int(limit), int(remaining), left_s)
