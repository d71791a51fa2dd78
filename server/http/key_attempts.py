"""Wrong keys, slowed down per address, so that a key cannot be tried out.

The right key always passes, at once: behind one address there may be a proxy with many clients, of
which one guesses. So an attempt costs time, not a lock.
"""

import asyncio
import logging
from collections import OrderedDict
from ipaddress import IPv6Address, ip_network

from core.acceptor import IPV6_PREFIX
from core.errors import Unauthorized
from server.net.addresses import address_of

logger = logging.getLogger(__name__)

FREE = 10
"Wrong keys of an address that cost nothing: people mistype, and a page asks for several things."

FORGET_S = 60.0
"After so long without a wrong key an address begins anew."

MAX_WAIT_S = 8.0
"""The longest time that one answer is held back, reached with the fourth that costs. With the 256
connections that an address may hold that is 32 keys a second; a random key of 16 characters takes
longer than there is time."""

MAX_ADDRESSES = 4096
"The ones longest quiet are forgotten: some 0.5 MB."


class KeyAttemptLimiter:
    """Those of one listener. Times are in seconds of any clock."""

    def __init__(self) -> None:
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()

    async def slow_down(self, remote: str | None) -> None:
        """A wrong key came from there: hold its answer back, however many others wait. Each holds a
        connection, whose number is limited.

        Raises Unauthorized too_many_wrong_keys, unless this one was free. The status stays 401:
        who mistyped the key is asked for it again, and no client library tries the same one again.
        """
        wait_s = self.came(remote, asyncio.get_running_loop().time())
        if not wait_s:
            return
        await asyncio.sleep(wait_s)
        raise Unauthorized(
            "the key is wrong, and too many wrong ones came from this address, so that answers are"
            " held back; the right one is taken at once",
            code="too_many_wrong_keys",
        )

    def came(self, remote: str | None, now: float) -> float:
        """How long the answer to a wrong key is held back."""
        source = _source_of(remote)
        count, last = self._wrong.pop(source, (0, now))
        count = 1 if now - last > FORGET_S else count + 1
        self._wrong[source] = (count, now)
        if len(self._wrong) > MAX_ADDRESSES:
            self._wrong.popitem(last=False)
        costly = count - FREE
        if costly == 1:
            logger.warning("! %d wrong keys came from %s; it is slowed down", count, source)
        if costly < 1:
            return 0.0
        return MAX_WAIT_S if costly > MAX_WAIT_S else min(MAX_WAIT_S, 2.0 ** (costly - 1))


def _source_of(remote: str | None) -> str:
    """The key under which an address is counted: for IPv6 its network, as whoever has one address
    there has all of them."""
    address = address_of(remote or "")
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ip_network((address, IPV6_PREFIX), strict=False))
