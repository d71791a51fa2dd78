"""Consent checks (RFC 7675): ask regularly whether the other side still accepts our packets. They
replace aioice's check.

aioice waits half a second for each of six answers, and ends the call if they come later for 30 s.
On a busy machine or by satellite that ends calls while audio goes both ways. Here an answer may
take 3.5 s.
"""

import asyncio
import random

from aioice import Connection
from aioice.stun import TransactionError

from media.webrtc.aiortc_internals.transport import (
    close_within_consent_check,
    replace_consent_check,
    selected_pairs,
)

CHECK_INTERVAL_S = 5.0
"Mean time between checks, RFC 7675 section 5.1; it varies by a factor of 0.8 to 1.2."

EXPIRY_S = 30.0
"Time after the last answer when consent expires, RFC 7675 section 5.1."

_REPETITIONS = 2
"""Number of repetitions of a check, after 0.5 and 1.5 s. Not more: the path to the other side may
have changed by then."""


def renew_consent(connection: Connection) -> None:
    """Makes the connection use this check once it is connected."""
    replace_consent_check(connection, lambda: _renew(connection))


async def _renew(connection: Connection) -> None:
    """Checks until the connection is closed. Closes it when consent has expired."""
    now = asyncio.get_running_loop().time
    answered_at = now()
    while now() < answered_at + EXPIRY_S:
        try:
            # Consent may also expire between two checks.
            async with asyncio.timeout_at(answered_at + EXPIRY_S):
                await asyncio.sleep(CHECK_INTERVAL_S * (0.8 + 0.4 * random.random()))
                await _send_check(connection)
        except (TransactionError, TimeoutError):
            # no valid answer: check again, until consent has expired
            continue
        answered_at = now()
    await close_within_consent_check(connection)


async def _send_check(connection: Connection) -> None:
    """Sends one check. Raises TransactionError when it is refused or not answered."""
    password = connection.remote_password
    assert password is not None  # consent is asked for once it is connected
    for pair in tuple(selected_pairs(connection).values()):
        request = connection.build_request(pair, nominate=False)
        await pair.protocol.request(
            request, pair.remote_addr, integrity_key=password.encode(), retransmissions=_REPETITIONS
        )
