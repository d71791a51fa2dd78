"""Slows down wrong keys per address, so that a key cannot be guessed. The right key always passes
at once: a proxy with many clients may be behind one address, and only one of them guesses. So a
wrong attempt only takes time, and never locks anybody out."""

import asyncio
import logging
from collections import OrderedDict
from ipaddress import IPv6Address, ip_network

from core.errors import Unauthorized
from core.net.acceptor import IPV6_PREFIX
from server.net.addresses import address_of

logger = logging.getLogger(__name__)

FREE_ATTEMPTS = 10
"Wrong keys per address that are answered at once: people mistype, and a page sends several."

RESET_AFTER_S = 60.0
"Time without a wrong key after which an address starts again from zero, in seconds."

MAX_WAIT_S = 8.0
"""Longest delay of one answer, in seconds, reached with the fourth delayed attempt. With the 256
connections that an address may hold, this allows 32 keys a second; a random key of 16 characters
cannot be found at that rate."""

MAX_ADDRESSES = 4096
"""Number of addresses to remember, some 0.5 MB. The one without a wrong key for the longest time is
forgotten first."""


class KeyAttemptLimiter:
    """Counts the wrong keys that one listener received, per address."""

    def __init__(self) -> None:
        self._attempts: OrderedDict[str, tuple[int, float]] = OrderedDict()

    async def slow_down(self, remote: str | None) -> None:
        """Delays the answer to a wrong key. The number of delayed answers has no limit of its own:
        each holds a connection, and the number of those is limited.

        `remote`: address of the client. Raises Unauthorized too_many_wrong_keys after the delay;
        returns at once for the first FREE_ATTEMPTS. The status stays 401: a user who mistyped
        is asked again, and client libraries do not repeat a 401.
        """
        wait_s = self.count_wrong_key(remote, asyncio.get_running_loop().time())
        if not wait_s:
            return
        await asyncio.sleep(wait_s)
        raise Unauthorized(
            "the key is wrong. After too many wrong keys from this address, refusals are delayed;"
            " the right key is accepted at once",
            code="too_many_wrong_keys",
        )

    def count_wrong_key(self, remote: str | None, now_s: float) -> float:
        """Counts a wrong key and returns how many seconds to delay its answer. `now_s`: seconds of
        any monotonic clock."""
        source = _source_of(remote)
        count, last_s = self._attempts.pop(source, (0, now_s))
        count = 1 if now_s - last_s > RESET_AFTER_S else count + 1
        self._attempts[source] = (count, now_s)
        if len(self._attempts) > MAX_ADDRESSES:
            self._attempts.popitem(last=False)
        delayed_count = count - FREE_ATTEMPTS
        if delayed_count == 1:
            logger.warning("! %d wrong keys came from %s; its attempts are delayed", count, source)
        if delayed_count < 1:
            return 0.0
        return (
            MAX_WAIT_S
            if delayed_count > MAX_WAIT_S
            else min(MAX_WAIT_S, 2.0 ** (delayed_count - 1))
        )


def _source_of(remote: str | None) -> str:
    """Returns the name under which an address is counted. For IPv6 that is its network: a machine
    with one address there can use all of them."""
    address = address_of(remote or "")
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ip_network((address, IPV6_PREFIX), strict=False))
