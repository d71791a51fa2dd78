"""Runs the garbage collector while there is no session. A finished call leaves reference cycles,
some 1 400 objects with aiortc. A full collection stops the event loop: 100 ms were measured after
30 calls. Audio of running sessions would have a gap that long."""

import gc
import logging
from time import perf_counter

from pipeline.session.sessions import Sessions

logger = logging.getLogger(__name__)

QUIET_S = 2.0
"""Wait after the last session, in seconds. After it the call is closed, and a client that calls
again at once is not delayed by a collection."""


async def collect_when_idle(sessions: Sessions) -> None:
    """Collects garbage whenever the last session has ended, until it is cancelled. On a server that
    is never without a session, Python's own collector does the work."""
    while True:
        await sessions.wait_until_unused(QUIET_S)
        began_s = perf_counter()
        count = gc.collect()
        logger.debug(
            "= garbage collected: %d objects in %.0f ms", count, 1000 * (perf_counter() - began_s)
        )
