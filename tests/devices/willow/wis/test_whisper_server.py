"""A server process with Willow's ports: speech in every form, and the key in the URL."""

import asyncio
import io
import json
import socket
import wave
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path

import av
import pytest
from aiohttp import ClientSession, ClientTimeout, FormData
from av.audio.stream import AudioStream

from core.audio import Pcm
from media.files.decode import decode_file
from tests.devices.willow.wis.rtc.webrtc_client import calling
from tests.ports import reserved_port
from tests.server.process import LOADS_HERE, run, serving
from tests.shared import shared_data
from tests.speech import say

pytestmark = pytest.mark.live

KEY = "a-key-of-the-tests-0123456789"
SENTENCE = "turn on the kitchen light"


@dataclass(frozen=True)
class Ports:
    main: str
    "With the key as a password."
    http: str
    https: str
    said: list[str]


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    """Ports of a server on every address, so that the key is needed."""
    with reserved_port() as http, reserved_port() as https:
        settings = {
            "EARSHOT_API_KEY": KEY,
            "EARSHOT_WILLOW__HTTP_PORT": str(http),
            "EARSHOT_WILLOW__HTTPS_PORT": str(https),
            "EARSHOT_LOG__LEVEL": "debug",
        }
        folder = tmp_path_factory.mktemp("willow")
        with serving(folder, "--host", "0.0.0.0", settings=settings) as server:
            at = f"anna:{KEY}@127.0.0.1"
            main = server.url.replace("127.0.0.1", at)
            yield Ports(main, f"http://{at}:{http}", f"https://{at}:{https}", server.said)
            assert server.stop() == 0
    assert not [line for line in server.said if KEY in line or "Traceback" in line]
    assert not [line for line in server.said if "kitchen" in line or "bedroom" in line]


def asked(
    method: str,
    url: str,
    *,
    data: object = None,
    headers: dict[str, str] | None = None,
    query: dict[str, str] | None = None,
) -> tuple[int, bytes]:
    """Returns status and body. The client turns `user:password@` into an Authorization header."""

    async def ask() -> tuple[int, bytes]:
        async with ClientSession(timeout=ClientTimeout(20)) as client:
            response = await client.request(
                method, url, data=data, headers=headers, params=query, ssl=False
            )
            return response.status, await response.read()

    return asyncio.run(ask())


def got(url: str, **query: str) -> tuple[int, bytes]:
    return asked("GET", url, query=query)


async def paced(data: bytes, wait_s: float) -> AsyncIterator[bytes]:
    """Sends speech as the firmware does, 64 ms in each chunk."""
    for at in range(0, len(data), 2048):
        yield data[at : at + 2048]
        await asyncio.sleep(wait_s)


def posted(
    url: str, data: bytes, audio: Mapping[str, str] | None = None, *, wait_s: float = 0
) -> tuple[int, dict[str, object]]:
    headers = {f"x-audio-{name}": value for name, value in (audio or {}).items()}
    status, body = asked("POST", url, data=paced(data, wait_s), headers=headers)
    assert len(body) < 2048
    found: dict[str, object] = json.loads(body)
    return status, found


def wav(pcm: Pcm, rate_hz: int = 16_000) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setparams((1, 2, rate_hz, 0, "NONE", ""))
        file.writeframes(pcm.tobytes())
    return out.getvalue()


def amr(pcm_8k: Pcm) -> bytes:
    """Encodes narrow-band AMR: FFmpeg has no encoder for wide-band."""
    out = io.BytesIO()
    with av.open(out, "w", format="amr") as container:
        stream = container.add_stream("libopencore_amrnb", rate=8000)
        assert isinstance(stream, AudioStream)
        stream.codec_context.layout = "mono"
        stream.codec_context.bit_rate = 12_200
        frame = av.AudioFrame.from_ndarray(pcm_8k.reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate, frame.pts = 8000, 0
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return out.getvalue()


def clip(rate_hz: int = 16_000) -> Pcm:
    return say(SENTENCE, rate_hz=rate_hz, lead_ms=200, tail_ms=400)


def test_speech_in_every_form_is_transcribed_on_every_port(ports: Ports) -> None:
    for url in (ports.main, ports.http, ports.https):
        status, found = posted(f"{url}/api/willow", clip().tobytes())
        assert (status, found) == (
            200,
            {"language": "en", "text": SENTENCE, "model": "whisper-nano"},
        ), url
    forms: list[tuple[bytes, dict[str, str]]] = [
        (clip(48_000).tobytes(), {"codec": "pcm", "sample-rate": "48000", "bits": "16"}),
        (wav(clip(22_050), 22_050), {"codec": "wav", "channel": "1"}),
        (amr(clip(8000)), {"codec": "amr"}),
    ]
    for data, audio in forms:
        status, found = posted(f"{ports.http}/api/willow?model=large&beam_size=5", data, audio)
        assert status == 200, found
        assert str(found["text"]).lower().strip(".") == SENTENCE, audio


def test_the_codec_of_the_firmware_is_decoded(ports: Ports) -> None:
    data = shared_data("codecs", "command_001.awb").read_bytes()
    sent = {"codec": "amrwb", "sample-rate": "16000", "bits": "16", "channel": "1"}
    whole = posted(f"{ports.http}/api/willow?stats=true", data, sent)
    assert whole[0] == 200
    assert whole[1]["text"]
    assert whole[1]["audio_duration"] == 1940
    cut = posted(f"{ports.http}/api/willow", data[: len(data) // 2 + 3], sent)
    assert cut[0] == 200


def test_a_file_in_a_form_is_transcribed(ports: Ports) -> None:
    form = FormData()
    form.add_field("audio_file", wav(clip()), filename="speech.wav")
    status, body = asked("POST", f"{ports.http}/api/asr?model=tiny", data=form)
    assert status == 200, body
    found = json.loads(body)
    assert found["text"] == SENTENCE
    assert found["infer_time"] > 0
    assert found["audio_duration"] == round(len(clip()) / 16)


def test_translation_works_or_names_the_missing_feature(ports: Ports) -> None:
    status, found = posted(f"{ports.http}/api/willow?translate=true", clip().tobytes())
    if status == 200:
        assert found["translation"]
    else:
        error = found["error"]
        assert isinstance(error, dict)
        assert (status, error["code"]) == (400, "unsupported_parameter")


def test_an_answer_comes_soon_after_paced_speech(ports: Ports) -> None:
    status, found = posted(f"{ports.http}/api/willow?stats=1", clip().tobytes(), wait_s=0.064)
    assert (status, found["text"]) == (200, SENTENCE)
    assert isinstance(found["infer_time"], float)


def test_only_health_is_served_without_the_key(ports: Ports) -> None:
    bare = ports.http.replace(f"anna:{KEY}@", "")
    for path in ("/api/ping", "/api/tts?text=a", "/v1/realtime", "/"):
        assert got(f"{bare}{path}")[0] == 401, path
    assert got(f"{bare}/health")[0] == 200
    assert got(f"{bare.replace('//', '//anna:wrong@')}/api/ping")[0] == 401


def test_the_ports_serve_only_willows_api(ports: Ports) -> None:
    for url in (ports.http, ports.https):
        assert got(f"{url}/api/ping") == (200, b'{"message":"pong"}')
        assert got(f"{url}/api/docs")[0] == 200
        paths = json.loads(got(f"{url}/api/openapi.json")[1])["paths"]
        assert "/api/willow" in paths
        for path in ("/", "/v1/realtime", "/metrics", "/earshot/engines"):
            assert path not in paths
            assert got(f"{url}{path}")[0] == 404, path
    assert got(f"{ports.main}/api/ping")[0] == 200


def test_a_tts_url_may_contain_spaces(ports: Ports) -> None:
    """The firmware appends the text unescaped."""
    host, port = ports.http.rpartition("@")[2].split(":")
    auth = "YW5uYTphLWtleS1vZi10aGUtdGVzdHMtMDEyMzQ1Njc4OQ=="
    url = "/api/tts?format=WAV&speaker=CLB&text=Sorry, I can't find the küche!"
    request = f"GET {url} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Basic {auth}\r\n"
    with socket.create_connection((host, int(port)), timeout=20) as device:
        for part in (request[:30], request[30:] + "Connection: close\r\n\r\n"):
            device.sendall(part.encode())
        answer = HTTPResponse(device)
        answer.begin()
        assert answer.status == 200
        body = answer.read()
    encoded = got(f"{ports.http}/api/tts", text="Sorry, I can't find the küche!")[1]
    assert abs(len(body) - len(encoded)) < 100  # the voice is never quite the same
    assert len(decode_file(encoded)) > 16_000


def test_a_webrtc_call_is_transcribed(ports: Ports) -> None:
    # With a beam of 5 and Opus, the toy model confuses things of the house now and then.
    sentence = "what time is it"
    spoken = say(sentence, rate_hz=48_000, lead_ms=200, tail_ms=400)

    async def talk() -> str:
        async with asyncio.timeout(30), ClientSession(ports.http) as client, calling(client) as one:
            one.send("start")
            await one.say(spoken)
            one.send("stop", obj={"model": "large", "beam_size": 5, "detect_language": False})
            found = await one.expect("infer")
            return str(found["obj"]["text"])

    assert asyncio.run(talk()) == sentence


@pytest.mark.parametrize("setting", ["HTTP_PORT", "HTTPS_PORT"])
def test_a_taken_port_is_one_error_line(setting: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        settings = {**LOADS_HERE, f"EARSHOT_WILLOW__{setting}": port}
        ended = run(tmp_path, "serve", "--port", "0", settings=settings)
    assert ended.returncode == 3
    assert ended.stderr == (
        f"earshot: 127.0.0.1:{port} is in use by another program; "
        f"choose another with willow.{setting.lower()}\n"
    )
