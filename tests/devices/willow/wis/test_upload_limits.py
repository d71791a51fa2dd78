"""`POST /api/willow` and `POST /api/asr`: time, memory, and clients that leave."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import numpy as np
import pytest
from aiohttp import ClientConnectionError

from devices.willow.wis.door import WillowSettings
from devices.willow.wis.upload import MAX_PARTS
from media.files.upload_spool import SpoolLimits, UploadSpools
from tests.devices.willow.wis.servers import MAX_UPLOAD_BYTES, Scene, Server, against
from tests.devices.willow.wis.uploads import ONE_TWO, audio, flac, form, pieces, wav
from tests.server.http.harness import error_of

pytestmark = pytest.mark.live


def test_a_late_transcript_is_an_error_before_the_device_times_out() -> None:
    async def act(server: Server) -> None:
        response = await server.client.post("/api/willow", data=ONE_TWO.tobytes())
        assert (response.status, (await error_of(response))["code"]) == (504, "engine_timeout")

    scene = Scene(settings=WillowSettings(reply_timeout_s=0.2))
    scene.asr.delay_s = 60
    against(act, scene)


@pytest.mark.parametrize("codec", ["pcm", "flac"])
def test_a_device_that_disconnects_midway_leaves_nothing_behind(
    codec: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(server: Server) -> None:
        began = asyncio.Event()

        async def half() -> AsyncIterator[bytes]:
            yield ONE_TWO.tobytes()[:40_000]
            began.set()
            await asyncio.Event().wait()

        async with asyncio.TaskGroup() as tasks:
            posting = tasks.create_task(
                server.client.post("/api/willow", data=half(), headers=audio(codec))
            )
            await began.wait()
            await server.uploads(1)
            posting.cancel()
        await server.uploads(0)

    against(act)
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


def test_work_for_a_disconnected_device_is_cancelled() -> None:
    async def act(server: Server) -> None:
        with pytest.raises((TimeoutError, ClientConnectionError)):
            async with asyncio.timeout(0.5):
                await server.client.post("/api/willow", data=ONE_TWO.tobytes())
        await server.uploads(0)

    scene = Scene(settings=WillowSettings(reply_timeout_s=60))
    scene.asr.delay_s = 60
    against(act, scene)


def test_the_size_of_an_endless_upload_is_limited() -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"#!AMR\n" * 10_000

    async def act(server: Server) -> None:
        for codec in ("flac", "wav"):
            response = await server.client.post("/api/willow", data=endless(), headers=audio(codec))
            assert (response.status, (await error_of(response))["code"]) == (413, "audio_too_large")

    against(act, Scene(spools=UploadSpools(SpoolLimits(max_bytes=10**6))))


def test_the_size_of_an_endless_form_is_limited() -> None:
    """Also if its bytes are in an unused part."""
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        yield b'--X\r\nContent-Disposition: form-data; name="other"\r\n\r\n'
        while sent < 100 * MAX_UPLOAD_BYTES:
            yield b"a" * 65_536
            sent += 65_536

    async def act(server: Server) -> None:
        headers = {"Content-Type": "multipart/form-data; boundary=X"}
        response = await server.client.post("/api/asr", data=endless(), headers=headers)
        assert (response.status, (await error_of(response))["code"]) == (413, "too_large")

    against(act)
    assert sent < 10 * MAX_UPLOAD_BYTES


@pytest.mark.parametrize(("parts", "status"), [(MAX_PARTS, 200), (MAX_PARTS + 1, 413)])
def test_the_number_of_parts_of_a_form_is_limited(parts: int, status: int) -> None:
    sent = form(wav())  # has two
    for _ in range(parts - 2):
        sent.add_field("other", "x")

    async def act(server: Server) -> None:
        response = await server.client.post("/api/asr", data=sent)
        assert response.status == status, await response.text()
        if status == 413:
            assert str(MAX_PARTS) in (await response.json())["error"]["message"]

    against(act)


def test_a_compressed_body_is_refused_by_name() -> None:
    async def act(server: Server) -> None:
        response = await server.client.post(
            "/api/willow", data=b"no gzip" * 99, headers={"Content-Encoding": "gzip"}
        )
        code = (await error_of(response))["code"]
        assert (response.status, code) == (415, "unsupported_content_encoding")

    against(act)


@pytest.mark.parametrize("patience_s", [9.0, 0.5])
def test_the_reply_timeout_starts_with_the_last_byte(patience_s: float) -> None:
    """Also if all the decoding is still to be done then."""
    scene = Scene(settings=WillowSettings(reply_timeout_s=patience_s))
    scene.asr.info = replace(scene.asr.info, window_ms=2500, max_batch=1)
    scene.asr.delay_s = 0.4

    async def act(server: Server) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        response = await server.client.post(
            "/api/willow?stats=true", data=pieces(flac(np.tile(ONE_TWO, 8))), headers=audio("flac")
        )
        took_ms = 1000 * (loop.time() - began)
        found = await response.json()
        if patience_s < 1:
            assert (response.status, found["error"]["code"]) == (504, "engine_timeout")
            assert took_ms < 3000  # with all its work: more than that
        else:
            assert found["audio_duration"] == 20_000
            assert 0.5 * took_ms < found["infer_time"] < took_ms + 0.001

    against(act, scene)


@pytest.mark.alone
def test_decoding_neither_blocks_the_loop_nor_fills_the_memory() -> None:
    """Two thirds of a megabyte of lost frames would be four hours of silence."""
    worst_s = 0.0

    async def watch() -> None:
        nonlocal worst_s
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(0.005)
            worst_s = max(worst_s, loop.time() - before)

    async def act(server: Server) -> None:
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(watch())
            data = b"#!AMR\n" + b"\x7c" * 700_000
            response = await server.client.post("/api/willow", data=data, headers=audio("amr"))
            assert (response.status, (await error_of(response))["code"]) == (413, "audio_too_long")
            watching.cancel()

    against(act, is_virtual=False)
    assert worst_s < 0.5
