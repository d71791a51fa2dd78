"""Checks the URLs that notifications make a device fetch.

Allowed are this server and hosts that the operator named. The device fetches the URL itself, from
inside the home network: see `core.http.fetch_policy`.
"""

import logging
from collections.abc import Sequence

from core.errors import RequestError
from core.http.fetch_policy import HostAllowlist, HostResolver, UrlNotAllowed, parse_fetch_target

logger = logging.getLogger(__name__)


class AudioUrlPolicy:
    """Allowed URLs for the sound of notifications.

    hosts: names or addresses, each with `:port`, or without for any port.
    """

    def __init__(self, hosts: Sequence[str] = (), resolve: HostResolver | None = None) -> None:
        self._hosts = HostAllowlist(hosts, resolve)

    async def check(self, url: str, own: str) -> None:
        """Checks one URL. Raises RequestError audio_url_refused, which says why.

        own: this server's address as the device uses it, such as `http://192.168.1.2:8502`.
        """
        try:
            await self._check(url, own)
        except UrlNotAllowed as why:
            logger.warning("! the audio_url of a notification is refused: %s", why)
            raise RequestError(
                f"audio_url: {why}", code="audio_url_refused", param="audio_url"
            ) from None

    async def _check(self, url: str, own: str) -> None:
        target = parse_fetch_target(url)
        if target.origin == own.lower():
            return
        if not self._hosts.has(target):
            raise UrlNotAllowed("its host is neither this server nor in willow.audio_hosts")
        await self._hosts.check_address(target)
