"""One server with a recogniser, a voice, embeddings and a language model, all used at once.

The weights are official, but those of the language model, which are small and random: no language
model with a known hash is small enough.
"""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
import pytest

from bench.asr.error_rates import normalised
from engines.llm.vllm.environment import python_of
from engines.runtime.external_server.program import reserve_port
from server.commands.engines.pip import pip
from tests.engines.llm.vllm.installation import installed, tiny_llama
from tests.real_models import minilm, tiny_en
from tests.server.process import serving

pytestmark = [pytest.mark.real, pytest.mark.late]

HOST = "127.0.0.1"
START_TIMEOUT_S, ANSWER_TIMEOUT_S = 600, 300

SERVE = "import sys; from transformers.cli.transformers import main; sys.exit(main())"
SENTENCE = "the kettle is on and the water is boiling"


@contextmanager
def model_server(model: Path) -> Iterator[str]:
    """Runs the model; yields its address when it is ready."""
    python = python_of(installed())
    # Without dependencies, because torch is pinned.
    pip(python, "install", "--no-deps", "accelerate", report_progress=print)
    with reserve_port("llm", "transformers", HOST, 0) as port:
        where = ("--host", HOST, "--port", str(port), "--device", "cpu", "--dtype", "float32")
        process = subprocess.Popen(
            [str(python), "-c", SERVE, "serve", str(model), *where],
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            url = f"http://{HOST}:{port}"
            transport = httpx.HTTPTransport(retries=0)
            with httpx.Client(base_url=url, transport=transport) as client:
                asyncio.run(asyncio.wait_for(_ready(client, process), START_TIMEOUT_S))
            yield f"{url}/v1"
        finally:
            process.terminate()
            process.wait(60)


async def _ready(client: httpx.Client, process: subprocess.Popen[bytes]) -> None:
    while True:
        assert process.poll() is None, "the model server ended"
        try:
            if client.get("/health").is_success:
                return
        except httpx.TransportError:
            pass
        await asyncio.sleep(0.5)  # it tells nobody when it is ready


def test_every_kind_of_model_works_at_once(tmp_path: Path) -> None:
    installed()
    model, embedder = tiny_llama(), minilm()
    recogniser = {
        "EARSHOT_ASR__ENGINE": "faster_whisper",
        "EARSHOT_ASR__OPTIONS__MODEL": str(tiny_en()),
    }
    with model_server(model) as llm_url:
        settings = {
            "EARSHOT_TTS__ENGINE": "hibari",
            "EARSHOT_PATHS__MODELS_DIR": str(embedder.parent),
            "EARSHOT_LLM__ENGINE": "openai",
            "EARSHOT_LLM__OPTIONS__BASE_URL": llm_url,
            "EARSHOT_LLM__OPTIONS__MODEL": str(model),
            "EARSHOT_LLM__OPTIONS__FIRST_TOKEN_TIMEOUT_S": "120",
        }
        with serving(tmp_path, settings=settings, recogniser=recogniser) as server:
            heard, vectors, answer, cards = asyncio.run(_use_all(server.url))
    assert normalised(heard, "en") == SENTENCE
    alike, other = vectors[0] @ vectors[1], vectors[0] @ vectors[2]
    assert alike > other + 0.2
    assert len(answer) > 10
    kinds = {card["kind"] for card in cards if card["state"] == "loaded"}
    assert {"asr", "embed"} <= kinds


async def _use_all(url: str) -> tuple[str, Any, str, list[dict[str, Any]]]:
    """Uses every kind at the same time. Returns the transcript of spoken words, three vectors, an
    answer, and the list of models."""
    async with httpx.AsyncClient(base_url=url, timeout=ANSWER_TIMEOUT_S) as client:

        async def post(path: str, **arguments: Any) -> httpx.Response:
            answer = await client.post(path, **arguments)
            assert answer.status_code == 200, answer.text
            return answer

        async def speak_and_hear() -> str:
            body = {"model": "hibari", "input": SENTENCE, "voice": "default"}
            speech = await post("/v1/audio/speech", json={**body, "response_format": "wav"})
            files = {"file": ("speech.wav", speech.content, "audio/wav")}
            heard = await post("/v1/audio/transcriptions", data={"model": "default"}, files=files)
            return str(heard.json()["text"])

        async def embed() -> Any:
            texts = [SENTENCE, "water for tea is hot", "the stock market fell on Monday"]
            body = {"model": "all-MiniLM-L6-v2", "input": texts}
            data = (await post("/v1/embeddings", json=body)).json()["data"]
            return np.array([one["embedding"] for one in data])

        async def chat() -> str:
            messages = [{"role": "user", "content": "hello"}]
            body = {"model": "openai", "messages": messages, "temperature": 0, "max_tokens": 24}
            answer = (await post("/v1/chat/completions", json=body)).json()
            return str(answer["choices"][0]["message"]["content"])

        heard, vectors, answer = await asyncio.gather(speak_and_hear(), embed(), chat())
        cards: list[dict[str, Any]] = (await client.get("/v1/models")).json()["data"]
    return heard, vectors, answer, cards
