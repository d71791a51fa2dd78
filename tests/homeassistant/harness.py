"""A real Home Assistant on loopback, and a client of the API that its own page uses.

It has an environment of its own, because it needs Python 3.13.
"""

import asyncio
import fcntl
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp

from core.audio import Pcm
from tests.conftest import require
from tests.engines.llm.vllm.installation import STATE
from tests.environments import make_environment
from tests.ports import reserved_port

PACKAGES = (
    "homeassistant==2025.4.4",
    # What it would install by itself, for the integrations named below.
    "ha-ffmpeg==3.2.2",
    "aiohttp_sse==2.2.0",
    "hassil==2.2.3",
    "home-assistant-intents==2025.3.28",
    "imageio-ffmpeg==0.6.0",  # FFmpeg itself: Assist speaks MP3
    "mcp==1.5.0",
    "pydantic==2.10.6",
    "pydantic-settings==2.8.1",
    "mutagen==1.47.0",
    "paho-mqtt==2.1.0",
    "pymicro-vad==1.0.1",
    "pyspeex-noise==1.0.2",
    "wyoming==1.5.4",
)
ENVIRONMENT = STATE / "home-assistant"
START_S = 180

CONFIGURATION = """\
homeassistant:
  name: Test
  language: en
  time_zone: UTC
http:
  server_host: 127.0.0.1
  server_port: {port}
api:
websocket_api:
config:
demo:
conversation:
assist_pipeline:
"""

CHUNK = 512
"Samples per message, as a browser sends them."


def python_3_13() -> str | None:
    """Returns the path of the interpreter itself: pyenv's shims exist even without the version."""
    found = [shutil.which("python3.13")]
    found += sorted(map(str, Path.home().glob(".pyenv/versions/3.13*/bin/python3.13")))
    for one in filter(None, found):
        done = subprocess.run([one, "--version"], capture_output=True, check=False)
        if done.returncode == 0:
            return one
    return None


def installed() -> Path:
    """Returns the path of `hass`, which the first test that asks for it installs.

    pytest-xdist's workers are several processes: one installs, the others wait for its lock.
    """
    STATE.mkdir(parents=True, exist_ok=True)
    with (STATE / "home-assistant.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        is_done = ENVIRONMENT / "is-installed"
        wanted = "\n".join(PACKAGES)
        if not is_done.exists() or is_done.read_text() != wanted:
            _install()
            is_done.write_text(wanted)
    return ENVIRONMENT / "bin" / "hass"


def _install() -> None:
    python = python_3_13()
    require(python, "Python 3.13, which Home Assistant runs on")
    assert python is not None
    make_environment(ENVIRONMENT, *PACKAGES, python=python)
    (ffmpeg,) = ENVIRONMENT.glob("lib/*/site-packages/imageio_ffmpeg/binaries/ffmpeg-*")
    (ENVIRONMENT / "bin" / "ffmpeg").symlink_to(ffmpeg)


@contextmanager
def home_assistant(folder: Path) -> Iterator[str]:
    """Runs it and yields its address; `folder` holds its configuration and log."""
    with reserved_port() as port, started(folder, port) as (url, _):
        yield url


@contextmanager
def started(folder: Path, port: int) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Starts it on that port and yields its process; it keeps its earlier state in `folder`."""
    hass = installed()
    (folder / "configuration.yaml").write_text(CONFIGURATION.format(port=port))
    environ = {**os.environ, "PATH": f"{hass.parent}:{os.environ['PATH']}"}
    with (folder / "printed.log").open("ab") as printed:
        process = subprocess.Popen(
            [str(hass), "-c", str(folder)],
            env=environ,
            stdout=printed,
            stderr=subprocess.STDOUT,
        )
        try:
            yield f"http://127.0.0.1:{port}", process
        finally:
            process.kill()
            process.wait()


@dataclass
class HomeAssistant:
    """A client that is signed in as the owner."""

    url: str
    http: aiohttp.ClientSession
    ws: aiohttp.ClientWebSocketResponse
    _ids: Iterator[int] = field(default_factory=lambda: count(1))

    async def get(self, path: str) -> Any:
        async with self.http.get(self.url + path) as response:
            response.raise_for_status()
            return await response.json()

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        async with self.http.post(self.url + path, json=body) as response:
            assert response.status < 300, await response.text()
            return await response.json()

    async def add(self, integration: str, **answers: Any) -> dict[str, Any]:
        """Adds an integration through its own configuration dialogue."""
        flows = "/api/config/config_entries/flow"
        flow = await self.post(flows, {"handler": integration})
        added: dict[str, Any] = await self.post(f"{flows}/{flow['flow_id']}", answers)
        return added

    async def long_lived_token(self) -> str:
        """Creates a token as a user does for a program."""
        kind = "auth/long_lived_access_token"
        return str(await self.call(type=kind, client_name="earshot", lifespan=365))

    async def entities(self) -> set[str]:
        return {state["entity_id"] for state in await self.get("/api/states")}

    async def call(self, **message: Any) -> Any:
        """Returns the result of one WebSocket command."""
        number = next(self._ids)
        await self.ws.send_json({"id": number, **message})
        while (answer := await self.ws.receive_json(timeout=30))["id"] != number:
            pass
        assert answer["success"], answer
        return answer["result"]

    async def assist(self, pipeline: str, pcm: Pcm) -> dict[str, Any]:
        """Runs a pipeline from 16 kHz audio to speech; returns the data of each event by type."""
        number, events = next(self._ids), dict[str, Any]()
        wanted = {"start_stage": "stt", "end_stage": "tts", "input": {"sample_rate": 16000}}
        run = {"id": number, "type": "assist_pipeline/run", "pipeline": pipeline, **wanted}
        await self.ws.send_json(run)
        while not {"run-end", "error"} & set(events):
            message = await self.ws.receive_json(timeout=30)
            if message["id"] != number or message["type"] != "event":
                continue
            event = message["event"]
            events[event["type"]] = event["data"]
            if event["type"] == "stt-start":
                handler = events["run-start"]["runner_data"]["stt_binary_handler_id"]
                for at in range(0, len(pcm), CHUNK):
                    await self.ws.send_bytes(bytes([handler]) + pcm[at : at + CHUNK].tobytes())
                await self.ws.send_bytes(bytes([handler]))
        return events

    async def said(self, run: dict[str, Any]) -> bytes:
        """Returns the audio of such a run: MP3, as browsers get it."""
        async with self.http.get(self.url + run["tts-end"]["tts_output"]["url"]) as response:
            assert response.status == 200
            return await response.read()


@asynccontextmanager
async def signed_in(url: str) -> AsyncIterator[HomeAssistant]:
    """Creates the first user of a fresh installation, once that answers."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(60)) as http:
        await up(http, url)
        user = {"client_id": f"{url}/", "name": "T", "username": "t", "password": "for-tests"}
        async with http.post(
            f"{url}/api/onboarding/users", json={**user, "language": "en"}
        ) as made:
            code = (await made.json())["auth_code"]
        grant = {"grant_type": "authorization_code", "code": code, "client_id": f"{url}/"}
        async with http.post(f"{url}/auth/token", data=grant) as given:
            token = (await given.json())["access_token"]
        http.headers["Authorization"] = f"Bearer {token}"
        async with http.ws_connect(f"{url}/api/websocket") as ws:
            assert (await ws.receive_json())["type"] == "auth_required"
            await ws.send_json({"type": "auth", "access_token": token})
            assert (await ws.receive_json())["type"] == "auth_ok"
            yield HomeAssistant(url, http, ws)


async def up(http: aiohttp.ClientSession, url: str) -> None:
    """Waits until it answers."""
    async with asyncio.timeout(START_S):
        while True:
            try:
                async with http.get(f"{url}/api/onboarding") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientConnectionError:
                pass
            await asyncio.sleep(0.5)  # it tells nobody that it is there
