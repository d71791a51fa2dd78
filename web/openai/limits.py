"""Limits of the REST API: one for each capability, so that a flood of one leaves the others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from core.access.limits import CapacityLimit, PlaceCounter
from core.errors import EngineTimeout, OverloadedError, expected_failure

RETRY_AFTER_S = 2
"Seconds that a refused client is asked to wait: several short requests are answered in that time."


class RequestLimit:
    """Largest number of requests of one capability at a time, and the longest time of each.

    A request that waits for its model counts, too.
    """

    def __init__(
        self,
        stage: str,
        work: str,
        max_requests: int,
        timeout_s: float,
        places: PlaceCounter | None = None,
    ) -> None:
        """`stage`: kind of the engine, in errors. `work`: what the requests ask for, a noun.
        `places`: counts the requests of all gateways; None: this process is the only one."""
        self._stage, self._work, self._timeout_s = stage, work, timeout_s
        self._places = CapacityLimit(
            max_requests,
            f"{{limit}} {work} requests are being answered, the limit",
            retry_after_s=RETRY_AFTER_S,
            code="too_many_requests",
            name=f"{work} requests",
            places=places,
        )

    @asynccontextmanager
    async def take(self) -> AsyncIterator[None]:
        """Holds a place for one request while the `with` block runs, and cancels the block after
        the longest time.

        A model that refuses more work gives the same error as this limit, because clients of these
        APIs try again after status 429 and give up after others.

        Raises OverloadedError too_many_requests, draining; EngineTimeout.
        """
        with self._places.take():
            deadline = asyncio.timeout(self._timeout_s)
            try:
                async with deadline:
                    yield
            except TimeoutError:
                if not deadline.expired():
                    raise  # a time limit inside the work
                why = f"no answer within {self._timeout_s:g} s"
                raise EngineTimeout(self._stage, self._work, why) from None
            except (OverloadedError, ExceptionGroup) as exc:
                busy = expected_failure(exc)
                if not isinstance(busy, OverloadedError) or busy.code != "engine_busy":
                    raise
                raise OverloadedError(
                    str(busy), retry_after_s=busy.retry_after_s, code="too_many_requests"
                ) from exc

    async def drain(self) -> None:
        """Takes no new requests and waits until those under way are answered."""
        await self._places.drain()


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The limits of all capabilities."""

    embeddings: RequestLimit
    rerank: RequestLimit
    chat: RequestLimit
    "Also of `/v1/responses` and Ollama's API."
    transcriptions: RequestLimit
    speech: RequestLimit

    async def drain(self) -> None:
        """Takes no new requests and waits until those under way are answered."""
        async with asyncio.TaskGroup() as tasks:
            for limit in (
                self.embeddings,
                self.rerank,
                self.chat,
                self.transcriptions,
                self.speech,
            ):
                tasks.create_task(limit.drain())
