"""A model host with two gateways' connections: what they share, and what becomes of the work of one
that leaves."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path

import psutil
import pytest

from core.errors import ConfigError, EngineCrashed, EngineError, OverloadedError, RequestError
from engines.base import AsrItem, TtsInfo
from engines.registry import worker_profile
from engines.runtime.worker.payloads import SPEAK, SpeakArguments, SpeechMessage
from engines.runtime.worker.protocol import (
    CallRequest,
    ChunkReply,
    DoneReply,
    LoadRequest,
    ReadyReply,
    frame,
    request_reader,
)
from serving.asr.scheduling import DecodePriority
from serving.model_host import host as host_module
from serving.model_host.client import (
    HostedProcess,
    HostedRecogniser,
    HostedWorkers,
    read_metrics,
)
from serving.model_host.host import ModelHost
from serving.placement.offers import LoadableModel
from tests.pipeline.fakes import Counts, LoopClock
from tests.serving.workers.odd_voice import SENTENCE, WORD_SAMPLES
from tests.speech import say

pytestmark = pytest.mark.live

NANO = Path(__file__).parents[2] / "fixtures" / "whisper-nano"
OFFER = LoadableModel("nano", "faster_whisper", ({"model": str(NANO), "cpu_threads": 1},), {})
ODD = "tests.serving.workers.odd_voice"
LIGHTS, TIMER = "turn on the kitchen lights", "set a timer for five minutes"
LIMIT_S = 20


@asynccontextmanager
async def serving(path: Path) -> AsyncIterator[None]:
    """Runs a host."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        host = ModelHost(LoopClock(), Counts(), lambda: "a 1\n")
        task = asyncio.create_task(host.serve(listening, asyncio.Event()))
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def recogniser(path: Path, offer: LoadableModel = OFFER) -> AsyncIterator[HostedRecogniser]:
    """A gateway's recogniser."""
    hosted = HostedWorkers(path, Counts()).recogniser(offer, LoopClock())
    task = asyncio.create_task(hosted.run())
    try:
        await hosted.ready()
        await hosted.warm_up()
        yield hosted
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, BaseExceptionGroup):
            await task


@asynccontextmanager
async def voice(path: Path) -> AsyncIterator[HostedProcess[TtsInfo]]:
    """A gateway's voice."""
    profile = worker_profile("tts", ODD, {})
    assert profile is not None
    process = HostedWorkers(path, Counts()).process("tts", ODD, {}, TtsInfo, profile)
    assert isinstance(process, HostedProcess)
    async with process.running():
        await process.ready()
        yield process


def workers() -> list[psutil.Process]:
    """Returns the worker processes of the host, which is this process here."""
    children = psutil.Process().children()
    return [one for one in children if "engines.runtime.worker.main" in " ".join(one.cmdline())]


def run(scene: Awaitable[None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S):
            await scene

    asyncio.run(limited())


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - other processes set no event
        await asyncio.sleep(0.01)


async def words(hosted: HostedRecogniser, text: str, utterance: str = "item_1") -> str:
    item = AsrItem(utterance, say(text, tail_ms=300), is_final=True)
    result = await hosted.submit(item, DecodePriority.FINAL)
    return result.text.lower().rstrip(".")


def test_two_gateways_share_one_recogniser(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path / "m"), recogniser(tmp_path / "m") as one:
            async with recogniser(tmp_path / "m") as two:
                assert len(workers()) == 1
                # Both name their utterance item_1.
                both = await asyncio.gather(words(one, LIGHTS), words(two, TIMER))
                assert [*both] == [LIGHTS, TIMER]
                assert one.is_ready
                assert one.resident_mb() > 20
                await until(lambda: one.statistics.success.count >= 3)  # with the warm-up
                one.admit(DecodePriority.BATCH)
                await _check_cancelled_work_is_freed(one, two)
                await _check_a_killed_worker(one)
            assert await words(one, TIMER) == TIMER  # the other has left
        assert not workers()

    run(scene())


@asynccontextmanager
async def busy(one: HostedRecogniser) -> AsyncIterator[None]:
    """Keeps the worker busy with an utterance of one gateway, which then gets its words."""
    (worker,) = workers()
    os.kill(worker.pid, signal.SIGSTOP)
    first = asyncio.create_task(words(one, LIGHTS))
    await asyncio.sleep(0.1)  # it is on its way to the worker: nothing else shows that
    yield
    os.kill(worker.pid, signal.SIGCONT)
    assert await first == LIGHTS


async def _check_cancelled_work_is_freed(one: HostedRecogniser, two: HostedRecogniser) -> None:
    async with busy(one):
        asked = [asyncio.create_task(words(two, TIMER, f"item_{n}")) for n in range(3)]
        await until(lambda: one.waiting == 3)
        for task in asked:
            task.cancel()
        await until(lambda: one.waiting == 0)


async def _check_a_killed_worker(one: HostedRecogniser) -> None:
    """An utterance that its worker does not survive is lost, as in one process, and is not given
    to the next worker. The next utterance is recognised."""
    (worker,) = workers()
    os.kill(worker.pid, signal.SIGSTOP)
    lost = asyncio.create_task(words(one, LIGHTS))
    await asyncio.sleep(0.1)  # it is on its way to the worker: nothing else shows that
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(EngineCrashed, match="nano"):
        await lost
    assert await words(one, LIGHTS) == LIGHTS


def test_a_gateway_that_ends_frees_its_calls(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path / "m"), recogniser(tmp_path / "m") as one:
            async with busy(one):
                async with recogniser(tmp_path / "m") as two:
                    asked = [asyncio.create_task(words(two, TIMER, f"item_{n}")) for n in range(3)]
                    await until(lambda: one.waiting == 3)
                await until(lambda: one.waiting == 0)
            results = await asyncio.gather(*asked, return_exceptions=True)
            assert all(isinstance(result, EngineError) for result in results)

    run(scene())


def test_a_lost_host_is_asked_again_when_it_is_back(tmp_path: Path) -> None:
    async def scene() -> None:
        asked: list[str] = []

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            """A host that ends at every other call; the next one answers it."""
            requests = request_reader()
            while data := await reader.read(65_536):
                for request in requests.receive_data(data):
                    if isinstance(request, CallRequest):
                        asked.append(request.method)
                        if len(asked) % 2:
                            writer.close()
                            return
                        if request.method == SPEAK:
                            part = SpeechMessage(b"", [])
                            writer.write(frame(ChunkReply(request.request_id, part)))
                        writer.write(frame(DoneReply(request.request_id, "done")))
                    else:
                        writer.write(frame(ReadyReply(None)))
            writer.close()

        server = await asyncio.start_unix_server(answer, tmp_path / "m")
        load = LoadRequest("llm", "any", {})
        process = HostedProcess(tmp_path / "m", load, type(None), Counts())
        async with process.running():
            assert await process.call("reply", None, str, LIMIT_S) == "done"
            async with aclosing(process.stream(SPEAK, None, SpeechMessage)) as parts:
                assert [part.words async for part in parts] == [[]]
        assert asked == ["reply", "reply", SPEAK, SPEAK]
        server.close()

    run(scene())


def test_a_model_that_does_not_load_says_why(tmp_path: Path) -> None:
    broken = LoadableModel("broken", "faster_whisper", ({"model": str(tmp_path)},), {})

    async def scene() -> None:
        async with serving(tmp_path / "m"):
            with pytest.raises(EngineError, match="broken"):
                async with recogniser(tmp_path / "m", broken):
                    pass
            load = LoadRequest("tts", "espeak", {"options": {}})
            process = HostedProcess(tmp_path / "m", load, TtsInfo, Counts())
            async with process.running():
                with pytest.raises(ConfigError, match="no worker process"):
                    await process.ready()

    run(scene())


def test_two_gateways_share_one_voice(tmp_path: Path) -> None:
    arguments = SpeakArguments(SENTENCE, "en", "ann", 1.0, True)

    async def spoken(process: HostedProcess[TtsInfo]) -> int:
        async with aclosing(process.stream(SPEAK, arguments, SpeechMessage)) as parts:
            return sum([len(part.pcm) // 2 async for part in parts])

    async def scene() -> None:
        path = tmp_path / "m"
        async with serving(path), voice(path) as one, voice(path) as two:
            assert len(workers()) == 1
            lengths = await asyncio.gather(spoken(one), spoken(two))
            assert [*lengths] == [4 * WORD_SAMPLES] * 2
            unknown = SpeakArguments(SENTENCE, "en", "nobody", 1.0, False)
            with pytest.raises(RequestError):
                await anext(one.stream(SPEAK, unknown, SpeechMessage))

    run(scene())


def test_a_gateway_cannot_make_the_host_keep_more_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_module, "MAX_CALLS", 2)  # one of them follows the state

    async def scene() -> None:
        async with serving(tmp_path / "m"), recogniser(tmp_path / "m") as one:
            (worker,) = workers()
            os.kill(worker.pid, signal.SIGSTOP)
            first = asyncio.create_task(words(one, LIGHTS))
            await until(lambda: bool(len(one._process._pending) == 2))
            with pytest.raises(OverloadedError, match="2 calls of this gateway"):
                await words(one, TIMER)
            os.kill(worker.pid, signal.SIGCONT)
            assert await first == LIGHTS

    run(scene())


def test_the_metrics_of_the_host_can_be_read(tmp_path: Path) -> None:
    async def scene() -> None:
        assert await read_metrics(tmp_path / "m", 1) == ""
        async with serving(tmp_path / "m"):
            assert await read_metrics(tmp_path / "m", 1) == "a 1\n"

    run(scene())
