"""A decoder of files in a thread of the test, for servers tested without worker processes."""

from collections.abc import AsyncGenerator
from typing import BinaryIO

from core.audio import ASR_RATE_HZ, Pcm
from core.tasks import run_in_thread
from media.files.decode import FileLimits, decode


class ThreadDecoder:
    """A `media.files.decode.FileDecoder` without a process that protects the server."""

    async def blocks(
        self, file: BinaryIO, rate_hz: int = ASR_RATE_HZ, limits: FileLimits | None = None
    ) -> AsyncGenerator[Pcm, None]:
        decoding = decode(file, rate_hz, limits)
        try:
            while (pcm := await run_in_thread(next, decoding, None)) is not None:
                yield pcm
        finally:
            await run_in_thread(decoding.close)
