"""The engine with llama-server: start, answers, schema, grammar, abort, crash, and the doors in
front of it.

Where `earshot engines install llama_cpp` and `earshot models pull smollm2-135m` were run for the
tests (EARSHOT_CI_STATE), this is the real program with real weights; elsewhere a stand-in.
"""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import httpx2 as httpx
import pytest

from core.conversation.usage import TokenUsage
from core.errors import EngineCrashed, EngineError, RequestError
from engines.base import LlmOptions, Message, TextDelta
from engines.llm import llama_cpp
from engines.llm.llama_cpp.files import PROGRAM_PATH
from engines.llm.server_llm import ServerLlm
from server.commands.engines.llama_cpp_install import read_installation
from server.models.inventory import find_language_model
from tests.engines.llm.llama_cpp.fake_llama_server import (
    ASKED,
    ENDLESS,
    GRAMMAR,
    MANY_WORDS,
    PIXEL,
    SCHEMA,
)
from tests.engines.llm.vllm.installation import STATE
from tests.engines.runtime.model_files.tiny_gguf import write_gguf
from tests.server.process import serving
from tests.shared import ROOT

pytestmark = pytest.mark.live

GREEDY = {"temperature": 0.0, "max_tokens": 24}

INSTALLATION = STATE / "engines" / "llama_cpp"

START_S = 300
"Longest start on a loaded machine."

PATIENCE_S = 120

TIMEOUTS = {
    "connect_timeout_s": 30,
    "first_token_timeout_s": PATIENCE_S,
    "token_timeout_s": PATIENCE_S,
}


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Options of the engine: with the real program if it is there."""
    folder = tmp_path_factory.mktemp("llama_cpp")
    common = {"request": TIMEOUTS, "start_timeout_s": START_S, "context_tokens": 2048}
    weights = find_language_model(STATE / "models", "smollm2-135m")
    if read_installation(INSTALLATION) and weights:
        built = str(INSTALLATION / PROGRAM_PATH)
        return {"program": built, "model": str(weights), "threads": 1, **common}
    program = folder / "llama-server"
    module = "tests.engines.llm.llama_cpp.fake_llama_server"
    program.write_text(f'#!/bin/sh\ncd {ROOT} && exec {sys.executable} -m {module} "$@"\n')
    program.chmod(0o755)
    model = write_gguf(folder / "tiny.gguf", entries={"llama.context_length": 8192})
    return {"program": str(program), "model": str(model), **common}


@asynccontextmanager
async def started(options: dict[str, Any]) -> AsyncIterator[ServerLlm]:
    engine = llama_cpp.create(llama_cpp.Settings(**options))
    async with engine.running():
        yield engine


async def forwarded(engine: ServerLlm, path: str, **body: Any) -> Any:
    (whole,) = [text async for text in engine.forward(path, {**GREEDY, **body}, [])]
    return json.loads(whole)


WORD = r"\w{3}"
"The real model is so small that it answers with wrong words; llama-server alone has the same ones."


def chat(content: Any, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], **more}


def test_answers_report_usage_and_follow_schema_and_grammar(options: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with started(options) as engine:
            greedy = LlmOptions(temperature=0.0, max_output_tokens=24)
            reply = engine.reply([Message("user", ASKED)], (), language="en", options=greedy)
            parts = [part async for part in reply]
            assert re.search(WORD, "".join(p.text for p in parts if isinstance(p, TextDelta)))
            (usage,) = (part for part in parts if isinstance(part, TokenUsage))
            assert usage.input_tokens > 5
            assert usage.output_tokens > 1
            form = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
            whole = await forwarded(
                engine, "/chat/completions", **chat(ASKED, response_format=form)
            )
            assert set(json.loads(whole["choices"][0]["message"]["content"])) == {"city"}
            body = {"prompt": "Is Paris in France?", "grammar": GRAMMAR}
            whole = await forwarded(engine, "/completions", **body)
            assert whole["choices"][0]["text"] in ("yes", "no")
            with pytest.raises(RequestError) as refused:
                await forwarded(engine, "/chat/completions", **chat(MANY_WORDS))
            assert refused.value.code == "context_length_exceeded"
            image = [{"type": "image_url", "image_url": {"url": PIXEL}}]
            seen = [{"type": "text", "text": ASKED}, *image]
            with pytest.raises((RequestError, EngineError), match=r"(?i)image|mmproj"):
                await forwarded(engine, "/chat/completions", **chat(seen))

    asyncio.run(scenario())


def test_an_aborted_answer_frees_its_slot(options: dict[str, Any]) -> None:
    async def busy(engine: ServerLlm, client: aiohttp.ClientSession) -> bool:
        assert engine._llm is not None
        key = engine._llm._settings.api_key
        headers = {"Authorization": f"Bearer {key}"}
        async with client.get(f"{engine.url}/slots", headers=headers) as answer:
            return any(slot["is_processing"] for slot in await answer.json())

    async def scenario() -> None:
        async with started(options) as engine, aiohttp.ClientSession() as client:
            body = chat(ENDLESS, stream=True, max_tokens=1500, ignore_eos=True)
            async with aclosing(engine.forward("/chat/completions", body, [])) as texts:
                assert json.loads(await anext(texts))["object"] == "chat.completion.chunk"
                assert await busy(engine, client)
            async with asyncio.timeout(PATIENCE_S):
                while await busy(engine, client):  # noqa: ASYNC110 - its server sends no event
                    await asyncio.sleep(0.05)

    asyncio.run(scenario())


def test_a_killed_server_fails_its_answer_and_is_restarted(options: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with started(options) as engine:
            body = chat(ENDLESS, stream=True, max_tokens=1500, ignore_eos=True)
            async with aclosing(engine.forward("/chat/completions", body, [])) as texts:
                await anext(texts)
                assert engine.pid is not None
                os.kill(engine.pid, signal.SIGKILL)
                with pytest.raises(EngineCrashed, match="lost"):
                    async for _ in texts:
                        pass
            async with asyncio.timeout(START_S):
                while not engine.restarts or not engine.is_ready:
                    await engine.changed()
            assert await forwarded(engine, "/chat/completions", **chat(ASKED))

    asyncio.run(scenario())


# Through the doors


@pytest.fixture(scope="module")
def url(
    options: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Path]]:
    folder = tmp_path_factory.mktemp("server")
    settings = folder / "earshot.toml"
    lines = [
        f"{name} = {json.dumps(value)}" for name, value in options.items() if name != "request"
    ]
    request = ", ".join(f"{name} = {value}" for name, value in TIMEOUTS.items())
    settings.write_text(
        "\n".join(
            ['[llm]\nengine = "llama_cpp"\n[llm.options]', *lines, f"request = {{{request}}}"]
        )
    )
    with serving(folder, "--config", str(settings)) as server:
        yield server.url, folder


def test_the_doors_answer_with_the_model(url: tuple[str, Path]) -> None:
    address, _ = url
    body = {"model": "llama_cpp", **chat(ASKED), **GREEDY}

    def post(path: str, **sent: Any) -> httpx.Response:
        return httpx.post(f"{address}{path}", json=sent, timeout=PATIENCE_S)

    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    events = post("/v1/chat/completions", **body, **streamed).text.split("\n\n")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events if "{" in event]
    assert "data: [DONE]" in events
    texts = (choice["delta"].get("content") for chunk in chunks for choice in chunk["choices"])
    assert re.search(WORD, "".join(filter(None, texts)))
    assert chunks[-1]["usage"]["completion_tokens"] > 1
    whole = post("/completion", prompt="The capital of France is", n_predict=24, temperature=0.0)
    assert "Paris" in whole.json()["content"]
    image = {"type": "image_url", "image_url": {"url": PIXEL}}
    seen = post("/v1/chat/completions", **{**body, **chat([{"type": "text", "text": "?"}, image])})
    assert seen.status_code == 400
    assert seen.json()["error"]["code"] == "invalid_image"
    assert "takes no images" in seen.json()["error"]["message"]
    props = httpx.get(f"{address}/props", timeout=PATIENCE_S).json()
    assert (props["default_generation_settings"]["n_ctx"], props["total_slots"]) == (2048, 4)
