"""Texts while they are written, and between them what is said while their writer is busy."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from core.errors import EarshotError

FillerSink = Callable[[str], bool]
"Takes a sentence. False: not now, try again."


@dataclass(frozen=True, slots=True)
class FillerText:
    """A sentence over a silence; it is no part of the texts."""

    sentence: str


@asynccontextmanager
async def single_error_group() -> AsyncIterator[asyncio.TaskGroup]:
    """For tasks that hand their errors over themselves: the body's comes out as it was raised."""
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from None


async def stream_with_fillers(
    write: Callable[[FillerSink], AsyncGenerator[str, None]], tasks: asyncio.TaskGroup
) -> AsyncGenerator[str | FillerText, None]:
    """What `write` makes, at most a piece ahead of its reader, and what it says, when the reader
    has taken all there was. Closing it closes that. Raises EarshotError, as it does."""
    made = asyncio.Queue[str | FillerText | EarshotError | None]()
    room = asyncio.Semaphore(1)

    def say(sentence: str) -> bool:
        is_free = made.empty()
        if is_free:
            made.put_nowait(FillerText(sentence))
        return is_free

    async def fill() -> None:
        end: EarshotError | None = None
        try:
            async with aclosing(write(say)) as texts:
                async for text in texts:
                    await room.acquire()
                    made.put_nowait(text)
        except EarshotError as error:
            end = error
        made.put_nowait(end)

    filling = tasks.create_task(fill(), name="texts")
    try:
        while (piece := await made.get()) is not None:
            if isinstance(piece, EarshotError):
                raise piece
            yield piece
            if isinstance(piece, str):
                room.release()
    finally:
        filling.cancel()
        await asyncio.wait([filling])
