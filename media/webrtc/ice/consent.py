"""Whether the other side still takes what we send: RFC 7675, in the place of aioice's check.

aioice waits half a second for each of six answers and ends the call after 30 s of later ones: on a
busy machine, or by satellite, while sound goes both ways. Here an answer may take 3.5 s.
"""

import asyncio
import random

from aioice import Connection
from aioice.stun import TransactionError

from media.webrtc.aiortc_internals.names import require_private_names

EVERY_S = 5.0
"RFC 7675 section 5.1; by 0.8 to 1.2 of it."

EXPIRES_S = 30.0
"After the last answer, as there."

_AGAIN = 2
"After 0.5 and 1.5 s; not for longer, for the way to the other side may be another by then."

_CHECK, _TASK = "query_consent", "_query_consent_task"


def renew_consent(connection: Connection) -> None:
    """When it is connected. Raises EarshotError if this aioice asks elsewhere."""
    require_private_names(connection, _CHECK, _TASK, "_nominated")
    setattr(connection, _CHECK, lambda: _renew(connection))


async def _renew(connection: Connection) -> None:
    """Until it is closed, or consent has expired, by which it closes."""
    now = asyncio.get_running_loop().time
    answered_at = now()
    while now() < answered_at + EXPIRES_S:
        try:
            async with asyncio.timeout_at(answered_at + EXPIRES_S):  # between two checks as well
                await asyncio.sleep(EVERY_S * (0.8 + 0.4 * random.random()))
                await _ask(connection)
        except (TransactionError, TimeoutError):
            continue
        answered_at = now()
    setattr(connection, _TASK, None)  # closing it would cancel us
    await connection.close()


async def _ask(connection: Connection) -> None:
    """Raises TransactionError when it is refused, or not answered."""
    password = connection.remote_password
    assert password is not None  # consent is asked for once it is connected
    for pair in tuple(connection._nominated.values()):  # noqa: SLF001
        request = connection.build_request(pair, nominate=False)
        await pair.protocol.request(
            request, pair.remote_addr, integrity_key=password.encode(), retransmissions=_AGAIN
        )
