"""`earshot` as a process: exit codes, the key, TLS, draining."""

import asyncio
import json
import signal
import socket
import ssl
import stat
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import aiohttp
import psutil
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from server.config.load import load
from server.ports import bind_listeners
from tests.engines.embed.tiny_model import write_embedder
from tests.server.process import LOADS_HERE, Running, run, serving, workers
from tests.shared import ROOT

pytestmark = pytest.mark.live

MODEL = "EARSHOT_ASR__OPTIONS__MODEL"


def check_in(url: str) -> dict[str, Any]:
    """Returns the answer to the check-in of a board on this machine."""
    request = Request(f"{url}/xiaozhi/ota/", b"{}", {"Device-Id": "a1:b2:c3:d4:e5:f6"})
    with urlopen(request, timeout=20) as answer:
        told: dict[str, Any] = json.load(answer)
    return told


def get(url: str, path: str, *, key: str | None = None, host: str = "127.0.0.1") -> tuple[int, Any]:
    """Returns status and body, decoded if it is JSON; certificates are not checked."""

    async def ask() -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        split = urlsplit(url)
        at = f"{split.scheme}://{host}:{split.port}{path}"
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(20)) as client:
            response = await client.get(at, headers=headers, ssl=False)
            text = await response.text()
            is_json = response.content_type == "application/json"
            return response.status, json.loads(text) if is_json else text

    return asyncio.run(ask())


def test_a_server_reports_its_engines_and_exits_with_0(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        status, health = get(server.url, "/health")
        assert (status, health["status"]) == (200, "ready")
        assert health["loaded"] == {
            "vad": "gated",
            "wake": "micro",
            "endpoint": "silence",
            "asr": "faster_whisper",
            "llm": "intents",
            "tts": "espeak",
        }
        engines = get(server.url, "/earshot/engines")[1]
        assert engines["asr"]["chosen"] == "whisper-nano"
        assert engines["asr"]["why"] == "it is configured"
        assert "en" in engines["languages"]
        assert "Okay Nabu" in [word["phrase"] for word in engines["wake_words"]]
        assert "earshot_sessions" in get(server.url, "/metrics")[1]
        OpenAPIV31SpecValidator(get(server.url, "/openapi.json")[1]).validate()
        for path in ("/", "/docs", "/docs/swagger-ui-bundle.js", "/docs/start.js"):
            assert get(server.url, path)[0] == 200, path
        assert server.stop() == 0
    assert "stopped" in server.said[-1]
    suspicious = [line for line in server.said if "Traceback" in line or "key" in line.lower()]
    assert not suspicious, "\n".join(server.said)


def _models(server: Running) -> dict[str, dict[str, Any]]:
    """Returns the recognisers that sessions may choose."""
    offers = get(server.url, "/earshot/engines")[1]["asr"]["available"]
    return {offer["name"]: offer["model"] for offer in offers if offer["languages"]}


async def _choose_recogniser(server: Running, name: str) -> dict[str, Any]:
    """Returns the server's answer to a session that chooses this recogniser."""
    url = f"{server.url}/v1/realtime?model=default"
    asked = {"type": "realtime", "audio": {"input": {"transcription": {"model": name}}}}
    async with aiohttp.ClientSession() as client, client.ws_connect(url) as session:
        for begun in ("session.created", "conversation.created"):
            assert (await session.receive_json(timeout=30))["type"] == begun
        await session.send_json({"type": "session.update", "session": asked})
        answer: dict[str, Any] = await session.receive_json(timeout=30)
        return answer


def test_sessions_choose_among_all_models_and_a_killed_one_restarts(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "faster-whisper-tiny").symlink_to(LOADS_HERE[MODEL])
    with serving(tmp_path) as server:
        assert {name: model["is_loaded"] for name, model in _models(server).items()} == {
            "whisper-nano": True,
            "faster-whisper-tiny": False,
            "pocketsphinx": False,
        }
        assert len(workers(server)) == 1
        refused = asyncio.run(_choose_recogniser(server, "pocketspinx"))["error"]
        assert refused["code"] == "model_not_found"
        assert refused["param"] == "session.audio.input.transcription.model"
        assert "similar: pocketsphinx" in refused["message"]
        for name in ("pocketsphinx", "faster-whisper-tiny"):
            assert asyncio.run(_choose_recogniser(server, name))["type"] == "session.updated"
            while not _models(server)[name]["is_loaded"]:
                assert server.process.poll() is None
        found = workers(server)
        assert len(found) == 3
        for worker in found:
            worker.kill()
            psutil.wait_procs([worker], timeout=30)
        restarts = 'earshot_worker_restarts_total{kind="asr"} 3.0'
        while restarts not in get(server.url, "/metrics")[1]:
            assert server.process.poll() is None
        while get(server.url, "/health")[0] == 503:
            assert server.process.poll() is None
        assert get(server.url, "/health")[1]["status"] == "ready"
        assert server.stop() == 0


def test_preloaded_models_are_loaded_at_start(tmp_path: Path) -> None:
    write_embedder(tmp_path / "models/tiny-embedder")
    (tmp_path / ".env").write_text("MODELS=tiny-embedder\n", encoding="utf-8")
    settings = {"EARSHOT_ASR__PRELOAD": "pocketsphinx", "EARSHOT_ASR__MODEL": LOADS_HERE[MODEL]}
    with serving(tmp_path, settings=settings, recogniser={}) as server:
        card = get(server.url, "/v1/models/tiny-embedder")[1]
        assert (card["kind"], card["state"]) == ("embed", "loaded")
        assert all(model["is_loaded"] for model in _models(server).values())
        assert "earshot_asr_models_loaded 2.0" in get(server.url, "/metrics")[1]


async def _stopped_while_open(server: Running) -> tuple[aiohttp.WSMsgType, int]:
    """Returns how an idle session learns that the server stops."""
    url = f"{server.url}/v1/realtime?model=default"
    async with aiohttp.ClientSession() as client, client.ws_connect(url) as first:
        assert (await first.receive_json(timeout=30))["type"] == "session.created"
        server.process.send_signal(signal.SIGTERM)
        closed = await first.receive(timeout=30)
        while closed.type is aiohttp.WSMsgType.TEXT:
            closed = await first.receive(timeout=30)
        return closed.type, first.close_code or 0


def test_a_stopping_server_closes_sessions_with_a_close_code(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        kind, code = asyncio.run(_stopped_while_open(server))
        assert kind in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING)
        assert code in (1001, 1012)
        assert server.ended() == 0, server.said
        assert not [line for line in server.said if "Traceback" in line]


@pytest.mark.parametrize("is_asked_for", [False, True])
def test_transcripts_are_logged_and_traced_only_on_request(
    is_asked_for: bool, tmp_path: Path
) -> None:
    wish = str(is_asked_for).lower()
    trace = tmp_path / "trace.jsonl"
    settings = {
        "EARSHOT_LOG__LEVEL": "debug",
        "EARSHOT_LOG__TRANSCRIPTS": wish,
        "EARSHOT_TRACE__PATH": str(trace),
        "EARSHOT_TRACE__TRANSCRIPTS": wish,
    }
    with serving(tmp_path, settings=settings) as server:
        port = {"EARSHOT_PORT": server.url.rpartition(":")[2]}  # so `talk` needs no --url
        talked = run(tmp_path, "talk", "--text", "turn on the kitchen light", settings=port)
        assert talked.returncode == 0, talked.stdout + talked.stderr
        assert server.stop() == 0
    assert trace.stat().st_mode & 0o777 == 0o600
    for told in ("\n".join(server.said), trace.read_text()):
        assert ("turned on" in told.lower()) == is_asked_for
        assert is_asked_for or "kitchen" not in told.lower()


def test_a_server_on_all_addresses_prints_its_key_once(tmp_path: Path) -> None:
    with serving(tmp_path, "--host", "0.0.0.0") as server:
        shown = [line for line in server.said if "#key=" in line]
        assert shown
        key = shown[0].partition("#key=")[2]
        file = tmp_path / "earshot" / "api-key"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert file.read_text().strip() == key
        assert get(server.url, "/health") == (200, {"status": "ready"})
        assert get(server.url, "/")[0] == 200
        for path in ("/earshot/engines", "/metrics", "/openapi.json", "/nothing"):
            status, body = get(server.url, path)
            assert (status, body["error"]["code"]) == (401, "invalid_api_key"), path
        assert get(server.url, "/earshot/engines", key=key)[0] == 200
        assert get(server.url, "/nothing", key=key)[0] == 404
        assert server.stop() == 0
        assert not [line for line in server.said if key in line and line not in shown]
    with serving(tmp_path, "--host", "0.0.0.0") as again:
        assert get(again.url, "/metrics", key=key)[0] == 200
        assert not [line for line in again.said if key in line]
        assert f"The key is in {file}." in again.said
    own = {"EARSHOT_API_KEY": "a-key-of-my-own-choice"}
    with serving(tmp_path, "--host", "0.0.0.0", settings=own) as third:
        assert "The key is the one of server.api_key." in third.said
        assert not [line for line in third.said if own["EARSHOT_API_KEY"] in line]


def test_a_server_behind_a_proxy_needs_the_key_from_local_clients(tmp_path: Path) -> None:
    """Forwarded connections look like local ones."""
    state = tmp_path / "earshot"
    state.mkdir(mode=0o755)
    with serving(tmp_path, settings={"EARSHOT_REQUIRE_KEY": "true"}) as server:
        (shown,) = [line for line in server.said if "#key=" in line]
        url, _, key = shown.strip().partition("/#key=")
        assert url == server.url
        assert stat.S_IMODE(state.stat().st_mode) == 0o700
        assert any(f"{state} could be used by others (mode 0755)" in line for line in server.said)
        assert get(url, "/")[0] == 200
        assert get(url, "/health") == (200, {"status": "ready"})
        assert get(url, "/earshot/engines")[0] == 401
        assert get(url, "/earshot/engines", key=key)[0] == 200
        board = check_in(url)
        assert len(board["activation"]["code"]) == 6
        # The key of this machine's own server is found; another machine's would not be.
        talked = run(tmp_path, "talk", "--text", "turn on the kitchen light", "--url", url)
        assert talked.returncode == 0, talked.stdout + talked.stderr
        listed = run(tmp_path, "devices", "list", "--url", url)
        assert board["activation"]["code"] in listed.stdout, listed.stderr


@pytest.mark.parametrize(
    "settings", [{"EARSHOT_API_KEY": "k" * 16}, {"EARSHOT_ALLOWED_HOSTS": "voice.example"}]
)
def test_settings_for_remote_clients_require_the_key(settings: dict[str, str]) -> None:
    with ExitStack() as stack, TemporaryDirectory() as folder:
        server = {"EARSHOT_STATE_DIR": folder, "EARSHOT_WYOMING__PORT": "0", "EARSHOT_PORT": "0"}
        entrance = bind_listeners(load({**server, **settings}).config, stack)
        assert not entrance.gate.is_local
        assert entrance.gate.key
        assert entrance.is_new_key == ("EARSHOT_API_KEY" not in settings)
        assert bind_listeners(load(server).config, stack).gate.is_local


def test_tls_auto_serves_https_for_the_names_of_this_machine(tmp_path: Path) -> None:
    with serving(tmp_path, "--tls", "auto") as server:
        assert server.url.startswith("https://")
        assert get(server.url, "/health")[0] == 200
        context = ssl.create_default_context(cafile=str(tmp_path / "earshot" / "tls.pem"))
        port = urlsplit(server.url).port
        with (
            socket.create_connection(("127.0.0.1", port or 0)) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            assert secure.version() == "TLSv1.3"
        assert [line for line in server.said if line.count(":") == 31]
        assert subprocess.run(image_health_check(port or 0), check=False).returncode == 0


def image_health_check(port: int) -> list[str]:
    """Returns the command with which the image asks a server on this port for its health."""
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    command = dockerfile.split("\nHEALTHCHECK ")[1].split("\n")[0].partition(" CMD ")[2]
    _, *arguments = json.loads(command.replace(":8080/", f":{port}/"))
    return [sys.executable, *arguments]


def test_a_taken_port_is_one_error_line_and_exits_with_3(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        ended = run(tmp_path, "serve", "--port", port, settings=LOADS_HERE)
    assert ended.returncode == 3
    assert ended.stderr == (
        f"earshot: 127.0.0.1:{port} is in use by another program; choose another with --port\n"
    )


@pytest.mark.parametrize(
    ("settings", "code", "message"),
    [
        ({"EARSHOT_TURN__SILENCE_MSEC": "1"}, 2, "EARSHOT_TURN__SILENCE_MSEC: unknown setting"),
        ({"EARSHOT_HOST": "192.0.2.1"}, 2, "config.server.host: 192.0.2.1:"),
        ({"EARSHOT_TLS": "/no:/no"}, 2, "config.server.tls: /no:/no:"),
        ({"EARSHOT_CONFIG": "none.toml"}, 2, "none.toml: No such file"),
        ({"EARSHOT_TRACE__PATH": "/no/such/folder/t"}, 2, "config.trace.path:"),
        ({"EARSHOT_VAD__ENGINE": "nonsense"}, 2, "vad: no engine 'nonsense'"),
        (
            {**LOADS_HERE, "EARSHOT_ASSISTANT__WAKE_WORD": "hal"},
            2,
            "assistant.wake_word: wake word 'hal' is not known; these are: alexa, hey_jarvis",
        ),
        ({"EARSHOT_TTS__OPTIONS__SPEEED": "1"}, 2, "tts.espeak: unknown key 'speeed'"),
        ({"EARSHOT_ASR__ENGINE": "faster_whisper"}, 4, "asr engine 'faster_whisper': no Whisper"),
        ({**LOADS_HERE, MODEL: "/no/model"}, 4, "asr engine 'model': no model.bin"),
        ({**LOADS_HERE, "EARSHOT_ASR__MODEL": "tiny"}, 2, "asr.model and asr.options.model are"),
        ({**LOADS_HERE, "EARSHOT_ASR__PRELOAD": "tinny"}, 2, "asr.preload: no model 'tinny'"),
        ({**LOADS_HERE, "MODELS": "espeak,tinny"}, 2, "models.preload: no model 'tinny'"),
        ({"EARSHOT_MODELS__CATALOGUE": "none.toml"}, 2, "none.toml: No such file"),
        (
            {**LOADS_HERE, "EARSHOT_ASR__OPTIONS__DEVICE": "cuda", "CUDA_VISIBLE_DEVICES": ""},
            4,
            "asr engine 'faster_whisper': asr.options.device is cuda, but",
        ),
    ],
)
def test_an_impossible_start_is_one_error_line(
    settings: dict[str, str], code: int, message: str, tmp_path: Path
) -> None:
    if "EARSHOT_ASR__ENGINE" not in settings:
        settings = {**LOADS_HERE, **settings}
    ended = run(tmp_path, "serve", "--port", "0", "--log-level", "error", settings=settings)
    assert ended.returncode == code, ended.stderr
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"earshot: {message}")


def test_config_prints_values_with_their_sources(tmp_path: Path) -> None:
    ended = run(tmp_path, "config", "--port", "99", settings={"EARSHOT_LANGUAGE": "de"})
    assert ended.returncode == 0
    assert "port = 99" in ended.stdout
    assert "flag:--port" in ended.stdout
    assert "env:EARSHOT_LANGUAGE" in ended.stdout


@pytest.mark.parametrize(
    ("settings", "code", "line"),
    [
        (LOADS_HERE, 0, "ok    asr: faster_whisper (it is configured), built in"),
        (
            {"EARSHOT_ASR__ENGINE": "faster_whisper"},
            1,
            "FAIL  asr: asr engine 'faster_whisper': no Whisper weights",
        ),
        ({**LOADS_HERE, "EARSHOT_TTS__ENGINE": "nonsense"}, 1, "FAIL  tts: tts: no engine"),
        ({"EARSHOT_LANGUAGE": "german"}, 1, "FAIL  EARSHOT_LANGUAGE: expected a language code"),
    ],
)
def test_doctor_exits_with_1_if_the_server_could_not_answer(
    settings: dict[str, str], code: int, line: str, tmp_path: Path
) -> None:
    ended = run(tmp_path, "doctor", "--port", "0", settings=settings)
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert any(found.startswith(line) for found in ended.stdout.splitlines()), ended.stdout


def test_wrong_arguments_exit_with_2_and_help_lists_the_codes(tmp_path: Path) -> None:
    assert run(tmp_path, "sing").returncode == 2
    assert run(tmp_path, "serve", "--prot", "1").returncode == 2
    shown = run(tmp_path, "--help")
    assert shown.returncode == 0
    assert "exit codes:" in shown.stdout
