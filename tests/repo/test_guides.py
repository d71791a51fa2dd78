"""The guides in docs/guides, followed word for word.

What a reader does elsewhere is played here: the Hugging Face hub, a language model, a board.
"""

import asyncio
import json
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from aiohttp import ClientSession

from server.models.voices import PIPER_REPOSITORY
from tests.conftest import require
from tests.devices.willow.was.simulated_device import SimulatedWillow
from tests.devices.xiaozhi.simulated_board import Board
from tests.engines.tts.tiny_voices import have_piper, piper_voice
from tests.ports import reserved_port
from tests.repo.guide import Reader, blocks, reading
from tests.server.models.fake_hub import FakeHub, serving
from tests.shared import ROOT

pytestmark = pytest.mark.real

GUIDES = ROOT / "docs" / "guides"
QUIET = {"EARSHOT_WYOMING__PORT": "0"}
"There is one 10300, and servers run side by side."
QUICK = {**QUIET, "EARSHOT_TTS__ENGINE": "espeak"}
"For guides that are not about voices."


@pytest.fixture
def port() -> Iterator[int]:
    with reserved_port() as port:
        yield port


def talk(reader: Reader, text: str) -> str:
    reader.run(f'.venv/bin/earshot talk --quiet --text "{text}"')
    return reader.printed


def test_a_tool_of_your_own(tmp_path: Path, port: int) -> None:
    model = {"EARSHOT_LLM__ENGINE": "tests.plugins.which_bin_caller"}

    def which_bin() -> None:
        assert "the blue bin" in talk(reader, "which bin is collected on Monday?")

    with reading(tmp_path, port, **QUICK, **model) as reader:
        reader.follow(GUIDES / "your-own-tool.md", {"4. Start the server again": which_bin})
        which_bin()


def test_a_better_voice(tmp_path: Path, port: int) -> None:
    require(have_piper(), "piper-tts and onnx")
    voice = "en_US-lessac-medium"
    made = piper_voice(tmp_path, voice)
    place = f"en/en_US/lessac/medium/{voice}.onnx"
    files = {place: made.read_bytes(), f"{place}.json": Path(f"{made}.json").read_bytes()}
    folder = tmp_path / "house"
    folder.mkdir()
    with (
        serving(FakeHub({PIPER_REPOSITORY: {**files, "voices.json": b"{}"}})) as hub,
        reading(folder, port, **QUIET, HF_ENDPOINT=hub.url) as reader,
    ):
        reader.follow(GUIDES / "better-voice.md")
        with wave.open(str(folder / "answer.wav")) as answer:
            assert answer.getnframes() > answer.getframerate() / 2


@contextmanager
def ollama(*models: str) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Runs a server with OpenAI's chat completions; yields its port and the requests to it."""
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            listed = {"data": [{"id": model, "owned_by": "library"} for model in models]}
            self._send("application/json", json.dumps(listed))

        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            chunk = {"choices": [{"index": 0, "delta": {"content": "Air scatters blue light."}}]}
            self._send("text/event-stream", f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n")

        def _send(self, content_type: str, body: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", content_type)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port, asked
        finally:
            server.shutdown()
            thread.join()


def test_a_language_model(tmp_path: Path, port: int) -> None:
    with ollama("qwen3:4b") as (model, asked), reading(tmp_path, port, **QUICK) as reader:
        reader.replaced[":11434"] = f":{model}"
        reader.follow(GUIDES / "language-model.md")
        questions = [one["messages"][-1]["content"] for one in asked]
        assert "why is the sky blue?" in questions
        assert "turn on the kitchen lights" not in questions
        assert "Air scatters blue light." in talk(reader, "why is the sky blue?")


def test_a_room_speaker(tmp_path: Path, port: int) -> None:
    """The server stays on loopback, where `require_key` makes devices wait for approval, too."""
    url = f"http://127.0.0.1:{port}"

    async def xiaozhi_checks_in() -> str:
        async with ClientSession(url) as http:
            _, told = await Board(http).check_in()
            return str(told["activation"]["code"])

    async def xiaozhi_connects() -> None:
        async with ClientSession(url) as http:
            board = Board(http)
            await board.boot()
            await board.open(listens=False)
            typed = {"type": "listen", "state": "detect", "text": "turn on the kitchen lights"}
            await board.tell(typed)
            async with asyncio.timeout(30):
                answer = await board.text("tts", state="sentence_start")
            assert answer["text"] == "Turned on the kitchen lights."
            await board.hang_up()

    async def willow_boots() -> SimulatedWillow:
        device = SimulatedWillow(1, f"ws://127.0.0.1:{was_port}/ws")
        await device.boot()
        return device

    async def scenario(reader: Reader) -> None:
        page, willow = GUIDES / "room-speaker.md", None
        for block in blocks(page):
            if block.heading == "Approve a xiaozhi board" and "pair" in block.text:
                reader.replaced["123456"] = await xiaozhi_checks_in()
            if block.heading == "Approve a Willow speaker" and willow is None:
                await xiaozhi_connects()
                willow = await willow_boots()
            await asyncio.to_thread(reader.do, block)
        assert willow is not None
        async with asyncio.timeout(30):
            while willow.config is None:  # noqa: ASYNC110 - it is another program's message
                await asyncio.sleep(0.05)
        await willow.off()

    with (
        reserved_port() as was_port,
        reading(tmp_path, port, **QUICK, EARSHOT_SERVER__REQUIRE_KEY="true") as reader,
    ):
        reader.replaced |= {"0.0.0.0": "127.0.0.1", "8502": str(was_port)}
        asyncio.run(scenario(reader))
