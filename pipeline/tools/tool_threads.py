"""Functions that block, in threads that keep nobody from leaving.

A pool's threads are waited for when the interpreter ends; one tool that hangs would then keep the
whole server from ending.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from threading import Thread
from typing import Any

MAX_THREADS = 8
"Slow functions wait for each other, and for nothing else of ours."


class ToolThreads:
    """At most MAX_THREADS at a time, of one event loop."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(MAX_THREADS)

    async def run(self, call: Callable[[], Any]) -> Any:
        """What `call` gives or raises. Cancelling leaves it alone: it goes on, and keeps its slot
        until it ends."""
        await self._slots.acquire()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def settle(value: Any, error: Exception | None) -> None:
            self._slots.release()
            if future.done():
                return
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

        def job() -> None:
            value, error = _outcome(call)
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(settle, value, error)

        try:
            Thread(target=copy_context().run, args=(job,), name="tool_call", daemon=True).start()
        except RuntimeError:  # the system gives no more of them
            self._slots.release()
            raise
        return await future


def _outcome(call: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """One of both. What would end a thread, as `sys.exit`, must not end the loop."""
    try:
        return call(), None
    except StopIteration as error:  # no future takes it
        return None, RuntimeError(f"a tool raised {error!r}")
    except Exception as error:
        return None, error
    except BaseException as error:
        return None, RuntimeError(f"a tool raised {error!r}")
