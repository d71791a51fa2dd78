"""A client that disconnects frees its upload and its place in the queue."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from aiohttp import ClientError, FormData

from core.http.client_connection import ClientDisconnected, while_connected
from tests.loop import run_virtual
from tests.web.openai.transcriptions.harness import (
    ONE,
    TRANSCRIPTIONS,
    TWO,
    Server,
    against,
    recording,
    until,
    wav,
)
from tests.web.openai.transcriptions.raw_requests import PART, head

pytestmark = pytest.mark.live

SPOKEN = wav(recording(ONE, TWO))


@pytest.mark.parametrize(
    "length", [{"Content_Length": "3000000"}, {"Transfer_Encoding": "chunked"}]
)
def test_a_disconnect_during_the_upload_frees_everything(
    length: dict[str, str], tmp_path: Path
) -> None:
    async def scene(server: Server) -> None:
        url = server.client._base_url
        assert url is not None
        _, writer = await asyncio.open_connection(url.host, url.port)
        data = PART % b"file" + bytes(500_000)
        if "Transfer_Encoding" in length:
            data = f"{len(data):x}\r\n".encode() + data + b"\r\n"
        writer.write(head(**length) + data)
        await until(lambda: server.spools.used_bytes > 400_000)
        assert server.spools.count == 1
        writer.close()
        await until(server.is_idle)
        assert not server.listener.asked

    against(tmp_path, scene)


@pytest.mark.parametrize("stream", ["true", "false"])
def test_a_disconnect_during_recognition_frees_everything(stream: str, tmp_path: Path) -> None:
    async def scene(server: Server) -> None:
        server.listener.is_open.clear()
        form = FormData({"model": "default", "stream": stream})
        form.add_field("file", SPOKEN, filename="a.wav")
        with suppress(ClientError, TimeoutError):
            async with asyncio.TaskGroup() as tasks:
                asking = tasks.create_task(server.client.post(TRANSCRIPTIONS, data=form))
                await server.listener.is_asked.wait()
                assert (server.spools.count, server.listener.under_way) == (1, 1)
                asking.cancel()
        await until(server.is_idle)
        server.listener.is_open.set()
        assert (await server.json(SPOKEN))["text"] == "one two"

    against(tmp_path, scene)


def test_a_disconnect_between_two_events_frees_everything(tmp_path: Path) -> None:
    async def scene(server: Server) -> None:
        form = FormData({"model": "default", "stream": "true", "language": "en"})
        form.add_field("file", wav(recording(ONE, 0, 0, 0, 0, TWO)), filename="a.wav")
        server.listener.is_open.clear()
        server.listener.passes = 1
        async with server.client.post(TRANSCRIPTIONS, data=form) as response:
            assert b"transcript.text.delta" in await response.content.readline()
            await until(lambda: server.listener.under_way == 1)
            response.close()
        await until(server.is_idle)

    against(tmp_path, scene)


class Request:
    transport: object | None = object()


def test_work_is_cancelled_soon_after_the_connection_is_lost() -> None:
    request, cancelled = Request(), False

    async def work() -> None:
        nonlocal cancelled
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled = True
            raise

    async def scene() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(leave())
            with pytest.raises(ExceptionGroup) as group:
                await while_connected(request, work())
        assert group.group_contains(ClientDisconnected)

    async def leave() -> None:
        await asyncio.sleep(10)
        request.transport = None

    took_s = run_virtual(scene())
    assert cancelled
    assert 10 <= took_s < 10.5


def test_a_finished_response_is_delivered() -> None:
    async def work() -> int:
        await asyncio.sleep(5)
        return 3

    async def scene() -> None:
        assert await while_connected(Request(), work()) == 3

    assert run_virtual(scene()) == pytest.approx(5, abs=0.01)
