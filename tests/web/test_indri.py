"""The calls of Indri's own server, as its clients make them."""

import json

import pytest

from media.files.decode import decode_file
from tests.server.http.harness import error_of
from tests.web.openai.speech.harness import HeldTts, Server, against

pytestmark = pytest.mark.live

TIMES = ("time_to_first_token", "time_to_last_token", "generate_end_to_end_time", "end_to_end_time")


def test_a_text_becomes_an_mp3_with_its_times() -> None:
    tts = HeldTts()

    async def scene(server: Server) -> None:
        body = {"text": "Hello there. How are you?", "speaker": "tone/high"}
        async with server.client.post("/tts", json=body) as response:
            assert (response.status, response.content_type) == (200, "audio/mpeg")
            assert (
                "attachment; filename=speech_completion" in response.headers["Content-Disposition"]
            )
            assert response.headers["X-Request-ID"]
            found = decode_file(await response.read())
            metrics = json.loads(response.headers["x-metrics"])
        assert 550 * 16 <= len(found) <= 700 * 16
        assert {voice for _, _, voice, _ in tts.asked} == {"high"}
        times = [metrics[name] for name in TIMES]
        flat = [time[0] if isinstance(time, list) else time for time in times]
        assert flat == sorted(flat)
        assert 0 < flat[0] <= flat[-1] < 10
        assert (metrics["input_tokens"], metrics["decoding_tokens"]) == ([5], [12])
        assert (metrics["time_to_encode_audio"], metrics["time_to_decode_audio"]) == (0, 0)

    against(scene, tts)


def test_the_speakers_are_ids_with_a_sentence_each() -> None:
    async def scene(server: Server) -> None:
        async with server.client.get("/speakers") as response:
            speakers = (await response.json())["speakers"]
        assert speakers == ["tone/low", "tone/high", "tone/tief"]
        for speaker, word in (("tone/low", "hello"), ("tone/tief", "klinge")):
            async with server.client.post("/speaker_text", json={"speaker": speaker}) as response:
                assert word in (await response.json())["speaker_text"].lower()

    against(scene)


def test_a_sample_can_be_judged_once() -> None:
    async def scene(server: Server) -> None:
        rated: dict[str, list[int]] = {}
        for feedback in (1, -1, 1):
            async with server.client.get("/sample_audio") as response:
                assert (response.status, response.content_type) == (200, "audio/mpeg")
                sample = response.headers["x-sample-id"]
                assert len(decode_file(await response.read()))
            body = {"id": sample, "feedback": feedback}
            async with server.client.post("/audio_feedback", json=body) as response:
                assert response.status == 200
            async with server.client.post("/audio_feedback", json=body) as response:
                assert response.status == 404
                assert (await error_of(response))["code"] == "sample_not_found"
            async with server.client.get("/audio_feedback") as response:
                ratings = (await response.json())["ratings"]
            rated = {one["voice"]: [one["good"], one["bad"]] for one in ratings}
        assert set(rated) <= {"tone/low", "tone/high", "tone/tief"}
        assert [sum(counts) for counts in zip(*rated.values(), strict=True)] == [2, 1]

    against(scene)


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/tts", {"text": "hello", "speaker": "nobody"}, "voice_not_found"),
        ("/tts", {"text": "hello"}, "missing_required_parameter"),
        ("/tts", {"text": " ", "speaker": "low"}, "empty_string"),
        ("/tts", {"text": "a" * 4097, "speaker": "low"}, "string_above_max_length"),
        ("/tts", {"text": "...", "speaker": "low"}, "invalid_value"),
        ("/speaker_text", {"speaker": "nobody"}, "voice_not_found"),
        ("/audio_feedback", {"id": "sample_1", "feedback": 2}, "invalid_value"),
        ("/audio_feedback", {"feedback": 1}, "missing_required_parameter"),
    ],
)
def test_a_wrong_request_is_refused(path: str, body: dict[str, object], code: str) -> None:
    async def scene(server: Server) -> None:
        async with server.client.post(path, json=body) as response:
            assert response.status == 400
            error = await error_of(response)
        assert error["code"] == code
        if code == "voice_not_found":
            assert "low, high" in error["message"]

    against(scene)
