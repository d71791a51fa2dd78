"""Models that are loaded and unloaded many times: no request fails, and the memory comes back."""

from collections.abc import Iterator
from pathlib import Path
from threading import Condition, Event, Thread
from typing import Self

import httpx2 as httpx
import psutil
import pytest

from tests.engines.embed.tiny_model import write_embedder
from tests.server.process import TIMEOUT_S, Running, serving, workers

MODEL = "tiny-embedder"
WARM_UP = 5
"Loads before the first look at the memory: Python's allocator and the libraries settle."

MAX_GROWTH = 1.02


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    write_embedder(tmp_path / "models" / MODEL)
    settings = {
        "EARSHOT_PATHS__MODELS_DIR": str(tmp_path / "models"),
        # Not the templates of commands: the server loads theirs for other languages meanwhile.
        "EARSHOT_LLM__ENGINE": "openai",
        "EARSHOT_LLM__OPTIONS__BASE_URL": "http://127.0.0.1:9/v1",
        "EARSHOT_LLM__OPTIONS__MODEL": "none",
    }
    with serving(tmp_path, settings=settings) as server:
        server.url = server.url.rstrip("/")
        yield server


class Traffic:
    """A client that needs the model all the time, until it is told to end."""

    def __init__(self, url: str) -> None:
        self.statuses: list[int] = []
        self._url, self._is_over, self._answered = url, Event(), Condition()
        self._thread = Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def wait_for_answer(self) -> None:
        """Waits for an answer to a request that has not ended yet: then the model is loaded."""
        with self._answered:
            assert self._answered.wait(TIMEOUT_S)

    def _run(self) -> None:
        body = {"model": MODEL, "input": ["cat", "dog sits on mat"]}
        with httpx.Client(base_url=self._url, timeout=TIMEOUT_S) as client:
            while not self._is_over.is_set():
                self.statuses.append(client.post("/v1/embeddings", json=body).status_code)
                with self._answered:
                    self._answered.notify_all()


def unload(client: httpx.Client, traffic: Traffic) -> None:
    """Unloads the model in a gap between two requests."""
    while True:
        traffic.wait_for_answer()
        answer = client.post(f"/v1/models/{MODEL}/unload")
        if answer.status_code == 200:
            return
        assert answer.json()["error"]["code"] == "model_busy", answer.text


def resident_bytes(server: Running) -> int:
    return int(psutil.Process(server.process.pid).memory_info().rss)


@pytest.mark.parametrize(
    "loads",
    [pytest.param(20, marks=pytest.mark.real), pytest.param(100, marks=pytest.mark.soak)],
)
def test_loads_under_traffic_fail_no_request_and_leave_no_memory(
    server: Running, loads: int
) -> None:
    with httpx.Client(base_url=server.url, timeout=TIMEOUT_S) as client:
        with Traffic(server.url) as traffic:
            for _ in range(WARM_UP):
                unload(client, traffic)
            before_bytes = resident_bytes(server)
            for _ in range(loads):
                unload(client, traffic)
            after_bytes = resident_bytes(server)
        assert client.post(f"/v1/models/{MODEL}/unload").status_code == 200
    assert set(traffic.statuses) == {200}
    assert len(traffic.statuses) > loads
    assert len(workers(server)) == 1, "the recogniser's"
    print(f"{before_bytes} -> {after_bytes} bytes")
    assert after_bytes < MAX_GROWTH * before_bytes
