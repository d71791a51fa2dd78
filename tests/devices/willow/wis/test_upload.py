"""`POST /api/willow` and `POST /api/asr` with scripted engines: forms, sizes, parameters."""

from collections.abc import Mapping

import numpy as np
import pytest
from aiohttp import FormData

from devices.willow.wis.door import WillowSettings
from media.files.decode import decode_file
from tests.devices.willow.wis.servers import (
    Scene,
    Server,
    TranslatingAsr,
    against,
)
from tests.devices.willow.wis.uploads import ONE_TWO, audio, flac, form, pieces, wav
from tests.media.files.hostile_files import caf_chunk, monkeys_audio
from tests.pipeline.scripted_voices import ScriptedVoices
from tests.server.http.harness import error_of
from tests.shared import shared_data

pytestmark = pytest.mark.live


def as_bytes(bits: int, channels: int, samples: np.ndarray = ONE_TWO) -> bytes:
    wide = np.repeat(samples.astype(np.int32)[:, None], channels, axis=1)
    if bits == 24:
        return (wide << 8).astype("<i4").view(np.uint8).reshape(-1, 4)[:, :3].tobytes()
    return (wide << bits - 16).astype(f"<i{bits // 8}").tobytes()


@pytest.mark.parametrize(
    ("data", "headers"),
    [
        (ONE_TWO.tobytes(), {}),
        (ONE_TWO.tobytes(), {"x-audio-sample-rate": "", "x-audio-codec": ""}),
        (ONE_TWO.tobytes(), audio("PCM", "16000", "16", "1")),
        (as_bytes(16, 2), audio(channel="2")),
        (as_bytes(24, 1), audio(bits="24")),
        (as_bytes(24, 2), audio(bits="24", channel="2")),
        (as_bytes(32, 2), audio(bits="32", channel="2")),
        (np.repeat(ONE_TWO, 3).tobytes(), audio(rate_hz="48000")),
        (ONE_TWO[::2].tobytes(), audio(rate_hz="8000")),
        (ONE_TWO.tobytes() + b"\1", {}),
        (wav(), audio("wav")),
        (wav()[:-1001], audio("wav")),
        (flac(), audio("flac")),
        (flac(), audio("ogg")),  # the container itself says what it is
    ],
)
def test_a_device_is_answered_with_language_and_text(
    data: bytes, headers: Mapping[str, str]
) -> None:
    async def act(server: Server) -> None:
        response = await server.client.post("/api/willow", data=pieces(data), headers=headers)
        assert response.status == 200, await response.text()
        assert response.content_type == "application/json"
        found = await response.json()
        assert list(found) == ["language", "text", "model"]
        # A resampler's edges ring: other levels may be heard between the two.
        assert [word for word in found["text"].split() if word in {"one", "two"}] == ["one", "two"]
        assert found["language"] == "en"

    against(act)


@pytest.mark.parametrize(
    ("headers", "name", "allowed"),
    [
        (audio(rate_hz="7999"), "x-audio-sample-rate", "8000 to 48000"),
        (audio(rate_hz="9" * 5000), "x-audio-sample-rate", "8000 to 48000"),
        (audio(rate_hz="-16000"), "x-audio-sample-rate", "8000 to 48000"),
        (audio(rate_hz="fast"), "x-audio-sample-rate", "8000 to 48000"),
        (audio(bits="12"), "x-audio-bits", "16, 24, 32"),
        (audio(channel="0"), "x-audio-channel", "1, 2"),
        (audio(codec="../../etc"), "x-audio-codec", "pcm, wav,"),
        (audio(codec="ape"), "x-audio-codec", "pcm, wav, w64, aiff, flac, mp3, ogg, opus,"),
    ],
)
def test_an_impossible_header_is_named_with_the_allowed_values(
    headers: Mapping[str, str], name: str, allowed: str
) -> None:
    async def act(server: Server) -> None:
        response = await server.client.post("/api/willow", data=b"\0" * 640, headers=headers)
        error = await error_of(response)
        assert (response.status, error["code"], error["param"]) == (400, "invalid_value", name)
        assert name in error["message"]
        assert allowed in error["message"]
        assert len(await response.read()) < 2048

    against(act)


WRONG = [
    ({"model": "huge"}, "model_not_found", "tiny, base, small, medium, large, default, level"),
    ({"model": "x" * 5000}, "model_not_found", "level"),
    ({"force_language": "xx"}, "unsupported_language", "en, de"),
    ({"beam_size": "0"}, "invalid_value", "1 to 10"),
    ({"beam_size": "1000"}, "invalid_value", "1 to 10"),
    ({"beam_size": "1.5"}, "invalid_value", "1 to 10"),
    ({"translate": "maybe"}, "invalid_value", "true or false"),
    ({"detect_language": "2"}, "invalid_value", "true or false"),
]


@pytest.mark.parametrize("path", ["/api/willow", "/api/asr", "/api/rtc/asr"])
@pytest.mark.parametrize(("query", "code", "allowed"), WRONG)
def test_a_wrong_parameter_is_named_with_the_allowed_values(
    path: str, query: Mapping[str, str], code: str, allowed: str
) -> None:
    async def act(server: Server) -> None:
        offer = {"sdp": "v=0", "type": "offer"}
        body = {"json": offer} if path == "/api/rtc/asr" else {"data": b"\0" * 640}
        response = await server.client.post(path, params=query, **body)
        error = await error_of(response)
        assert (response.status, error["code"], error["param"]) == (400, code, next(iter(query)))
        assert allowed in error["message"]
        assert len(await response.read()) < 2048

    against(act)


def test_model_sizes_of_wis_choose_the_nearest_model() -> None:
    async def act(server: Server) -> None:
        for name in ("tiny", "large", "small", "small.en", "level", "Large", ""):
            query = {"model": name, "unknown": "x"}
            response = await server.client.post("/api/willow", params=query, data=ONE_TWO.tobytes())
            assert response.status == 200, name

    against(act)


@pytest.mark.parametrize(("is_strict", "status"), [(True, 400), (False, 200)])
def test_any_model_name_means_the_default_if_names_are_not_strict(
    is_strict: bool, status: int
) -> None:
    async def act(server: Server) -> None:
        query = {"model": "my-model"}
        response = await server.client.post("/api/willow", params=query, data=ONE_TWO.tobytes())
        assert response.status == status

    against(act, Scene(is_strict=is_strict))


def test_parameters_reach_the_recogniser() -> None:
    async def act(server: Server) -> None:
        asr = server.scene.asr
        for query, language, beam in (
            ({}, "en", None),
            ({"detect_language": "True"}, None, None),
            ({"force_language": "de", "detect_language": "true", "beam_size": "5"}, "de", 5),
        ):
            asr.options.clear()
            response = await server.client.post("/api/willow", params=query, data=ONE_TWO.tobytes())
            assert (await response.json())["language"] == (language or "de")
            assert {(one.language, one.beam_size) for one in asr.options} == {(language, beam)}

    against(act)


def test_a_translation_is_returned_with_the_text() -> None:
    async def act(server: Server) -> None:
        data, query = ONE_TWO.tobytes(), {"translate": "true", "stats": "1"}
        response = await server.client.post("/api/willow", params=query, data=data)
        found = await response.json()
        assert found["text"] == "one two"
        assert found["translation"] == "in English: one two"
        assert found["audio_duration"] == 2500
        assert isinstance(found["infer_time"], float)
        speedup = found["audio_duration"] / found["infer_time"]  # of a rounded time
        assert found["infer_speedup"] == pytest.approx(speedup, rel=0.01, abs=1)

    against(act)


def test_a_model_without_translation_is_named() -> None:
    async def act(server: Server) -> None:
        response = await server.client.post("/api/willow", params={"translate": "1"}, data=b"\0\0")
        error = await error_of(response)
        assert (response.status, error["code"]) == (400, "unsupported_parameter")
        assert "cannot translate" in error["message"]

    against(act, Scene(asr=TranslatingAsr(translates=False)))


@pytest.mark.parametrize(
    ("data", "codec", "code"),
    [
        (b"", "pcm", "unsupported_audio"),
        (b"\1", "pcm", "unsupported_audio"),
        (b"", "wav", "unsupported_audio"),
        (b"", "amrwb", "unsupported_audio"),
        (b"", "flac", "unsupported_audio"),
        (wav()[:44], "wav", "unsupported_audio"),
        (wav()[:30], "wav", "unsupported_audio"),
        (b"this is text, not sound" * 99, "wav", "unsupported_audio"),
        (b"this is text, not sound" * 99, "amrwb", "unsupported_audio"),
        (b"this is text, not sound" * 99, "mp3", "unsupported_audio"),
        (monkeys_audio(10**8), "flac", "unsupported_audio"),
        (caf_chunk(2**62), "caf", "unsupported_audio"),
        (b"#!AMR-WB\n" + b"\x50" * 99, "amrwb", "unsupported_audio"),
        (b"\0" * (21 * 32_000), "pcm", "audio_too_long"),
        (wav(np.zeros(21 * 16_000, np.int16)), "wav", "audio_too_long"),
    ],
)
def test_audio_without_speech_is_a_short_400(data: bytes, codec: str, code: str) -> None:
    async def act(server: Server) -> None:
        response = await server.client.post(
            "/api/willow", data=pieces(data, 50_000), headers=audio(codec)
        )
        assert response.status in (400, 413)
        assert (await error_of(response))["code"] == code
        assert len(await response.read()) < 2048

    against(act, Scene(settings=WillowSettings(max_stream_s=20)))


def test_save_audio_has_no_effect() -> None:
    async def act(server: Server) -> None:
        data = ONE_TWO.tobytes()
        saved = await server.client.post("/api/willow?save_audio=true", data=pieces(data))
        assert (await saved.json())["text"] == "one two"

    against(act)


@pytest.mark.parametrize("speakers", [None, ScriptedVoices(people=0), ScriptedVoices(None)])
def test_voice_auth_refuses_voices_that_nobody_taught(speakers: ScriptedVoices | None) -> None:
    async def act(server: Server) -> None:
        data = ONE_TWO.tobytes()
        refused = await server.client.post("/api/willow?voice_auth=true", data=pieces(data))
        assert refused.status == 406
        assert (await error_of(refused))["code"] == "unauthorized_voice"
        assert len(await refused.read()) < 2048
        plain = await server.client.post("/api/willow", data=pieces(data))
        assert list(await plain.json()) == ["language", "text", "model"]

    against(act, Scene(speakers=speakers))


def test_voice_auth_names_the_speaker_as_wis_does() -> None:
    voices = ScriptedVoices()

    async def act(server: Server) -> None:
        data = np.tile(ONE_TWO, 30).tobytes()
        response = await server.client.post("/api/willow?voice_auth=true", data=pieces(data))
        found = await response.json()
        assert found["text"].startswith("one two")
        assert {"infer_time", "infer_speedup", "audio_duration"} < found.keys()
        assert found["voice_auth"] == {"Anna": "0.900"}
        assert found["speaker_status"] == "Anna said:"
        assert voices.heard == [10.0]  # of a longer recording
        assert voices.asked_thresholds == [0.75]

    against(act, Scene(speakers=voices))


def test_a_file_is_answered_as_wis_does() -> None:
    async def act(server: Server) -> None:
        for data in (wav(), flac(), wav(np.tile(ONE_TWO, 30))):
            response = await server.client.post("/api/asr?translate=true", data=form(data))
            assert response.status == 200, await response.text()
            found = await response.json()
            assert list(found) == [
                *("infer_time", "infer_speedup", "audio_duration"),
                *("language", "text", "translation", "model"),
            ]
            assert found["text"].startswith("one two")
            assert found["audio_duration"] in (2500, 75_000)

    against(act)


FILES = [
    ("command_001.awb", "amrwb"),
    ("1272-141231-0002.flac", "flac"),
    ("1272-141231-0002.mp3", "mp3"),
    ("example3.sph", "nistsphere"),
    ("french.aiff", "aiff"),
    ("jfk_441khz.m4a", "m4a"),
    ("silero_test.opus", "opus"),
    ("uberi-audio-mono-16-bit-44100Hz.aiff", "aiff"),
    ("uberi-audio-mono-8-bit-44100Hz.wav", "wav"),
    ("uberi-audio-mono-24-bit-44100Hz.wav", "wav"),
    ("uberi-audio-mono-32-bit-44100Hz.wav", "wav"),
    ("uberi-audio-stereo-16-bit-44100Hz.flac", "flac"),
]
MALFORMED = ("malformed-awful.wav", "malformed-bad.wav", "malformed-evil.wav", "malformed-null.wav")


@pytest.mark.parametrize("path", ["/api/willow", "/api/asr"])
@pytest.mark.parametrize(("name", "codec"), FILES)
def test_files_of_every_format_are_transcribed(path: str, name: str, codec: str) -> None:
    data = shared_data("codecs", name).read_bytes()
    lasts_ms = len(decode_file(data)) / 16

    async def act(server: Server) -> None:
        body = form(data) if path == "/api/asr" else pieces(data)
        response = await server.client.post(f"{path}?stats=1", data=body, headers=audio(codec))
        assert response.status == 200, await response.text()
        assert abs((await response.json())["audio_duration"] - lasts_ms) <= 1

    against(act)


@pytest.mark.parametrize("path", ["/api/willow", "/api/asr"])
@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_file_is_refused(path: str, name: str) -> None:
    data = shared_data("codecs", name).read_bytes()

    async def act(server: Server) -> None:
        body = form(data) if path == "/api/asr" else pieces(data)
        response = await server.client.post(path, data=body, headers=audio("wav"))
        code = (await error_of(response))["code"]
        assert (response.status, code) == (400, "unsupported_audio")

    against(act)


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (b"raw", 415, "unsupported_media_type"),
        (form(wav(), "file"), 400, "missing_required_parameter"),
        (form(b""), 400, "unsupported_audio"),
        (form(b"text" * 1000), 400, "unsupported_audio"),
        (form(b"\0" * (5 * 1024 * 1024)), 413, "too_large"),
    ],
)
def test_a_form_without_audio_is_refused(data: FormData | bytes, status: int, code: str) -> None:
    async def act(server: Server) -> None:
        response = await server.client.post("/api/asr", data=data)
        assert (response.status, (await error_of(response))["code"]) == (status, code)

    against(act)


def test_ping_and_the_link_to_the_documentation() -> None:
    async def act(server: Server) -> None:
        assert await (await server.client.get("/api/ping")).json() == {"message": "pong"}
        for path, target in (("docs", "/docs"), ("openapi.json", "/openapi.json")):
            moved = await server.client.get(f"/api/{path}", allow_redirects=False)
            assert (moved.status, moved.headers["Location"]) == (302, target)

    against(act)
