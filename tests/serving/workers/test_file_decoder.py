"""Untrusted audio files in worker processes: intact, hostile, abandoned and killed ones."""

import asyncio
import os
import shutil
import signal
import struct
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import BinaryIO

import numpy as np
import psutil
import pytest
from msgspec.msgpack import Decoder

from core.audio import Pcm
from core.errors import EngineCrashed, OverloadedError, PayloadTooLarge, RequestError
from engines.runtime.worker.protocol import MessageFrameReader
from media.files.decode import FileLimits, decode_file
from serving.workers import file_decoder
from serving.workers.file_decoder import MEMORY_BYTES, DecoderProcess, DecoderShare
from serving.workers.file_decoder_host import PcmReply
from tests.media.files.hostile_files import (
    caf_chunk,
    m4a,
    m4a_of_fragments,
    m4a_of_repeats,
    monkeys_audio,
)
from tests.pipeline.fakes import Counts
from tests.shared import shared_data

pytestmark = pytest.mark.live

LIMIT_S = 60
LEFT_S = 2.0
"""The time within which a decoder ends after its client has left, on a busy machine. Otherwise
it would go on for much longer: one waits for its reader for ever, the other has 5 s of processor
time."""
LONG_S = 1800


def with_decoder(
    scenario: Callable[[DecoderProcess], Awaitable[None]], processor_s: float = 5
) -> None:
    async def main() -> None:
        process = DecoderProcess(Counts(), processor_s=processor_s)
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(process.run())
            await process.ready()
            await scenario(process)
            await until(lambda: not process._running)
            running.cancel()

    asyncio.run(main())


async def until(holds: Callable[[], bool]) -> None:
    """Waits for a change in another process; the test's timeout ends the wait."""
    while not holds():  # noqa: ASYNC110 - the process tells nobody
        await asyncio.sleep(0.005)


def stored(data: bytes) -> BinaryIO:
    file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - its reader closes it
    file.write(data)
    return file


def silence(duration_s: int) -> BinaryIO:
    """Returns a WAV file of silence that takes no room on the disk."""
    file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - its reader closes it
    size_bytes = 2 * 16_000 * duration_s
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 16_000, 32_000, 2, 16)
    file.write(struct.pack("<4sI4s", b"RIFF", 36 + size_bytes, b"WAVE") + form)
    file.write(struct.pack("<4sI", b"data", size_bytes))
    file.truncate(44 + size_bytes)
    return file


async def heard(share: DecoderShare, file: BinaryIO) -> Pcm:
    with file:
        async with aclosing(share.blocks(file)) as blocks:
            return np.concatenate([pcm async for pcm in blocks])


async def refusal(share: DecoderShare, data: bytes) -> str:
    with pytest.raises(RequestError) as caught:
        await heard(share, stored(data))
    assert caught.value.code == "unsupported_audio"
    return str(caught.value)


@asynccontextmanager
async def watched(process: DecoderProcess) -> AsyncIterator[dict[str, float]]:
    """Measures, while the body runs, the most memory of a decoder and the longest stall of the
    loop."""
    found = {"memory_bytes": 0.0, "lag_s": 0.0}
    loop = asyncio.get_running_loop()
    host = psutil.Process(process.pid)

    async def watch() -> None:
        while True:
            before = loop.time()
            await asyncio.sleep(0.005)
            found["lag_s"] = max(found["lag_s"], loop.time() - before - 0.005)
            for one in host.children():
                try:
                    memory = one.memory_info().rss
                except psutil.Error:
                    continue  # it has just ended
                found["memory_bytes"] = max(found["memory_bytes"], memory)

    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(watch())
        yield found
        watching.cancel()


def test_all_recordings_decode_as_without_a_process() -> None:
    async def scenario(process: DecoderProcess) -> None:
        share = process.share(4)
        files = sorted(shared_data("codecs").iterdir())
        assert len(files) > 10
        for path in files:
            if path.name.startswith("malformed"):
                with pytest.raises(RequestError) as plain:
                    decode_file(path)
                assert str(plain.value) == await refusal(share, path.read_bytes())
            else:
                assert np.array_equal(await heard(share, path.open("rb")), decode_file(path))

    with_decoder(scenario)


HOSTILE = {
    "one frame of 100 million samples": (monkeys_audio(10**8), "allowed are wav"),
    "one frame of 250 million samples": (monkeys_audio(250_000_000), "allowed are wav"),
    "an index of 50 million packets": (m4a(50_000_000), "the index promises"),
    "three of them": (m4a(50_000_000, tracks=3), "the index promises"),
    "an index that fits into the memory": (m4a(400_000), "the index promises 400000 entries"),
    "a fragment of 50 million packets": (m4a_of_fragments(50_000_000), "memory"),
    "a fragment that fits into the memory": (m4a_of_fragments(400_000), "unsupported audio"),
    "20 million packets at one place": (m4a_of_repeats(16_000, 1250), "the index promises"),
    "half a million packets at one place": (m4a_of_repeats(16_000, 30), "the index promises"),
    "a chunk that is longer than a file can be": (caf_chunk(2**62), "allowed are wav"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_promises_more_than_it_holds_is_refused(name: str) -> None:
    data, why = HOSTILE[name]
    assert len(data) < 70_000

    async def scenario(process: DecoderProcess) -> None:
        memory = psutil.Process(process.pid).memory_info().rss
        async with watched(process) as found:
            assert why in await refusal(process.share(1), data)
        assert found["memory_bytes"] < memory + MEMORY_BYTES

    with_decoder(scenario)


def test_hostile_files_of_one_share_do_not_delay_another() -> None:
    """Six of them use all the processor time that they get while other files are decoded."""

    async def scenario(process: DecoderProcess) -> None:
        hostile, honest = process.share(6), process.share(1)
        speech = shared_data("codecs", "command_001.awb")
        took_s = []
        loop = asyncio.get_running_loop()
        async with watched(process) as found, asyncio.TaskGroup() as tasks:
            attacks = [tasks.create_task(refusal_of_the_slow(hostile)) for _ in range(6)]
            await until(lambda: len(process._running) == 6)
            for _ in range(4):
                began = loop.time()
                assert len(await heard(honest, speech.open("rb"))) == 1.94 * 16_000
                took_s.append(loop.time() - began)
            for attack in attacks:
                attack.cancel()
        assert np.median(took_s) < 1
        assert found["lag_s"] < 0.5

    with_decoder(scenario)


def test_a_file_that_needs_too_much_processor_time_is_refused() -> None:
    async def scenario(process: DecoderProcess) -> None:
        assert "0 s of processor time and 0.02 s for each" in await refusal_of_the_slow(
            process.share(1)
        )

    with_decoder(scenario, processor_s=0)


async def refusal_of_the_slow(share: DecoderShare) -> str:
    with slow() as file, pytest.raises(RequestError) as caught:
        await taken(share, file, FileLimits(max_bytes=2**30))
    return str(caught.value)


async def taken(share: DecoderShare, file: BinaryIO, limits: FileLimits) -> None:
    async with aclosing(share.blocks(file, limits=limits)) as blocks:
        async for _ in blocks:
            pass


def slow() -> BinaryIO:
    """Returns an MP3 file with a hole of 400 MB, which takes seconds to search through."""
    file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - its reader closes it
    with shared_data("codecs", "1272-141231-0002.mp3").open("rb") as speech:
        shutil.copyfileobj(speech, file)
    file.truncate(400_000_000)
    return file


@pytest.mark.parametrize("how", ["closed", "cancelled"])
def test_a_reader_that_leaves_ends_the_work(how: str) -> None:
    async def scenario(process: DecoderProcess) -> None:
        share = process.share(1)
        begun = asyncio.Event()

        async def listen() -> None:
            with silence(LONG_S) as file:
                async with aclosing(share.blocks(file)) as blocks:
                    async for _ in blocks:
                        begun.set()
                        if how == "closed":
                            break
                        await asyncio.Event().wait()

        async with asyncio.TaskGroup() as tasks:
            listening = tasks.create_task(listen())
            await begun.wait()
            left_at = asyncio.get_running_loop().time()
            listening.cancel()
        await until(lambda: not process._running)
        assert asyncio.get_running_loop().time() - left_at < LEFT_S

    with_decoder(scenario)


def test_a_reader_that_leaves_while_a_decoder_works_ends_it() -> None:
    async def scenario(process: DecoderProcess) -> None:
        share = process.share(1)
        async with asyncio.TaskGroup() as tasks:
            attack = tasks.create_task(refusal_of_the_slow(share))
            await until(lambda: bool(process._running))
            await asyncio.sleep(0.1)
            left_at = asyncio.get_running_loop().time()
            attack.cancel()
        await until(lambda: not process._running)
        assert asyncio.get_running_loop().time() - left_at < LEFT_S
        assert len(await heard(share, silence(2))) == 32_000

    with_decoder(scenario)


def test_a_file_is_not_decoded_far_ahead_of_its_reader() -> None:
    async def scenario(process: DecoderProcess) -> None:
        with silence(LONG_S) as file:
            async with aclosing(process.share(1).blocks(file)) as blocks:
                await anext(blocks)
                await asyncio.sleep(0.2)
                at_bytes = os.lseek(file.fileno(), 0, os.SEEK_CUR)
                assert at_bytes < 4_000_000

    with_decoder(scenario)


def test_size_and_duration_limits_are_named() -> None:
    async def scenario(process: DecoderProcess) -> None:
        share = process.share(1)
        for limits, code in (
            (FileLimits(max_bytes=1000), "audio_too_large"),
            (FileLimits(max_duration_s=10), "audio_too_long"),
        ):
            with silence(LONG_S) as file, pytest.raises(PayloadTooLarge) as caught:
                await taken(share, file, limits)
            assert caught.value.code == code

    with_decoder(scenario)


def test_a_file_waits_for_a_place_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(process: DecoderProcess) -> None:
        share = process.share(1)
        with silence(LONG_S) as file:
            async with aclosing(share.blocks(file)) as blocks:
                await anext(blocks)
                monkeypatch.setattr(file_decoder, "QUEUE_S", 0.05)
                with pytest.raises(OverloadedError, match="the queue is full"):
                    await heard(share, silence(1))
                monkeypatch.setattr(file_decoder, "QUEUE_S", 30.0)
                async with asyncio.TaskGroup() as tasks:
                    waits = tasks.create_task(heard(share, silence(1)))
                    await asyncio.sleep(0)
                    await blocks.aclose()
                assert len(waits.result()) == 16_000

    with_decoder(scenario)


def test_a_decoder_that_died_loses_only_its_file() -> None:
    async def scenario(process: DecoderProcess) -> None:
        share = process.share(2)
        with silence(LONG_S) as file, silence(LONG_S) as other:
            async with (
                aclosing(share.blocks(file)) as lost,
                aclosing(share.blocks(other)) as kept,
            ):
                await anext(lost)
                first = psutil.Process(process.pid).children()
                await anext(kept)
                min(first, key=lambda one: one.pid).kill()
                with pytest.raises(RequestError, match="the decoder crashed on this file"):
                    async for _ in lost:
                        pass
                for _ in range(50):
                    await anext(kept)

    with_decoder(scenario)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV])
def test_a_host_that_died_is_replaced(how: signal.Signals) -> None:
    async def scenario(process: DecoderProcess) -> None:
        share, first = process.share(1), process.pid
        assert first is not None
        with silence(LONG_S) as file:
            async with aclosing(share.blocks(file)) as blocks:
                await anext(blocks)
                decoders = psutil.Process(first).children()
                os.kill(first, how)
                with pytest.raises((EngineCrashed, RequestError)):
                    async for _ in blocks:
                        pass
        assert len(await heard(share, silence(1))) == 16_000
        assert process.pid != first
        await until(lambda: not any(one.is_running() for one in decoders))

    with_decoder(scenario)


def test_an_idle_decoder_that_died_is_replaced() -> None:
    async def scenario(process: DecoderProcess) -> None:
        (spare,) = psutil.Process(process.pid).children()
        spare.kill()
        await until(lambda: not spare.is_running())
        assert len(await heard(process.share(1), silence(1))) == 16_000

    with_decoder(scenario)


@pytest.mark.parametrize(
    "said",
    [
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x01\xc1",
        b"\x00\x00\x00\x12\x82\xa4type\xa5sound\xa3pcm\xc4\x01\x00",
    ],
)
def test_malformed_replies_of_a_decoder_are_refused(said: bytes) -> None:
    sounds: MessageFrameReader[PcmReply] = MessageFrameReader(
        Decoder(PcmReply), file_decoder._MAX_PAYLOAD_BYTES
    )
    with pytest.raises(RequestError, match="the decoder crashed"):
        file_decoder._decode_replies(sounds, said)


def test_a_refusal_has_only_codes_of_files() -> None:
    assert file_decoder._refusal("audio_too_long", "x").code == "audio_too_long"
    told = file_decoder._refusal("unauthorized", "x" * 10**6)
    assert (told.code, len(str(told))) == ("unsupported_audio", 1000)


def test_a_decoder_can_open_no_file() -> None:
    """The limits that the kernel reports for its process show it."""

    async def scenario(process: DecoderProcess) -> None:
        with silence(LONG_S) as file:
            async with aclosing(process.share(1).blocks(file)) as blocks:
                await anext(blocks)
                (decoding,) = [
                    one
                    for one in psutil.Process(process.pid).children()
                    if one.rlimit(psutil.RLIMIT_NOFILE) == (0, 0)
                ]
                assert decoding.rlimit(psutil.RLIMIT_CORE) == (0, 0)
                limit = decoding.rlimit(psutil.RLIMIT_AS)[0]
                assert limit < decoding.memory_info().vms + MEMORY_BYTES + 10**6
                await until(lambda: decoding.nice() == 15)
                assert decoding.num_fds() == 6  # the standard ones, its socket, the file, its sound

    with_decoder(scenario)
