"""OpenAI's Python client, unchanged, against the speech API."""

from pathlib import Path

import numpy as np
import openai
import pytest

from media.files.decode import decode_file
from tests.web.openai.speech.harness import HeldTts, Server, against

pytestmark = pytest.mark.live


def test_a_file_is_synthesised(tmp_path: Path) -> None:
    async def scene(server: Server) -> None:
        async with server.sdk() as client:
            answer = await client.audio.speech.create(
                model="tts-1", voice="alloy", input="Hello there."
            )
            assert answer.response.headers["content-type"] == "audio/mpeg"
            file = tmp_path / "said.mp3"
            answer.write_to_file(file)
        assert len(decode_file(file.read_bytes())) >= 250 * 16

    against(scene)


def test_a_stream_arrives_while_it_is_synthesised() -> None:
    tts = HeldTts()

    async def scene(server: Server) -> None:
        tts.goes_on.clear()
        async with (
            server.sdk() as client,
            client.audio.speech.with_streaming_response.create(
                model="gpt-4o-mini-tts",
                voice={"id": "high"},
                input="One whole sentence. And another one.",
                response_format="pcm",
                instructions="calmly",
                speed=1.5,
            ) as stream,
        ):
            chunks = stream.iter_bytes()
            first = await anext(chunks)
            assert len(tts.asked) == 1
            tts.goes_on.set()
            sound = first + b"".join([chunk async for chunk in chunks])
        assert len(np.frombuffer(sound, "<i2")) == 2 * 300 * 24
        assert {(voice, speed) for _, _, voice, speed in tts.asked} == {("high", 1.5)}

    against(scene, tts)


def test_errors_have_the_classes_of_the_client() -> None:
    tts = HeldTts()

    async def scene(server: Server) -> None:
        async with server.sdk() as client:
            with pytest.raises(openai.NotFoundError) as missing:
                await client.audio.speech.create(model="parrot", voice="alloy", input="a")
            assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
            with pytest.raises(openai.BadRequestError) as long:
                await client.audio.speech.create(model="tts-1", voice="alloy", input="x" * 5000)
            assert (long.value.code, long.value.param) == ("string_above_max_length", "input")
            tts.goes_on.clear()
            held = await server.post(response_format="wav")
            with pytest.raises(openai.RateLimitError) as busy:
                await client.audio.speech.create(model="tts-1", voice="alloy", input="a")
            assert (busy.value.status_code, busy.value.code) == (429, "too_many_requests")
            tts.goes_on.set()
            await held.read()

    against(scene, tts, max_parallel=1)
