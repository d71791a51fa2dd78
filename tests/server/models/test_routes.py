"""Models of a running server are loaded, unloaded, pinned, downloaded and removed over HTTP."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from tests.server.models.cli import environment_of
from tests.server.models.fake_hub import FakeHub, whisper_files
from tests.server.models.fake_hub import serving as serving_hub
from tests.server.process import LOADS_HERE, Running, serving, workers

pytestmark = pytest.mark.live

NANO = LOADS_HERE["EARSHOT_ASR__OPTIONS__MODEL"]
REPOSITORY = "Systran/faster-whisper-base"


@pytest.fixture(scope="module")
def hub() -> Iterator[FakeHub]:
    with serving_hub(FakeHub({REPOSITORY: whisper_files()})) as fake:
        yield fake


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, hub: FakeHub) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("server")
    (folder / "models").mkdir()
    (folder / "models" / "faster-whisper-tiny").symlink_to(NANO)
    network = environment_of(folder, hub.url)
    settings = {name: network[name] for name in ("HF_ENDPOINT", "NO_PROXY", "PIP_NO_INDEX")}
    settings["EARSHOT_PATHS__MODELS_DIR"] = str(folder / "models")
    with serving(folder, settings=settings) as running:
        yield running
        assert running.stop() == 0
        assert not [line for line in running.said if "Traceback" in line]


def ask(server: Running, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Returns status and body; of server-sent events, the list of their data."""

    async def request() -> tuple[int, Any]:
        timeout = aiohttp.ClientTimeout(60)
        async with (
            aiohttp.ClientSession(timeout=timeout) as client,
            client.request(method, server.url + path, json=body) as answer,
        ):
            text = await answer.text()
            if answer.content_type == "text/event-stream":
                lines = [line.removeprefix("data: ") for line in text.splitlines() if line]
                assert lines.pop() == "[DONE]"
                return answer.status, [json.loads(line) for line in lines]
            return answer.status, json.loads(text) if text else None

    return asyncio.run(request())


def _card(server: Running, name: str) -> dict[str, Any]:
    cards = {card["id"]: card for card in ask(server, "GET", "/v1/models")[1]["data"]}
    card: dict[str, Any] = cards[name]
    return card


def test_a_model_is_loaded_pinned_and_unloaded(server: Running) -> None:
    name = "faster-whisper-tiny"
    default, before = _card(server, "whisper-nano"), _card(server, name)
    assert (default["kind"], default["state"], default["is_default"]) == ("asr", "loaded", True)
    assert default["memory_bytes"] > 2**20
    assert (before["state"], before["is_default"], before["memory_bytes"]) == ("unloaded", False, 0)
    status, card = ask(server, "POST", f"/v1/models/{name}/load")
    assert (status, card["state"], card["is_pinned"]) == (200, "loaded", False)
    assert len(workers(server)) == 2
    assert ask(server, "POST", f"/v1/models/{name}/pin")[1]["is_pinned"] is True
    status, refused = ask(server, "POST", f"/v1/models/{name}/unload")
    assert (status, refused["error"]["code"]) == (409, "model_pinned")
    assert ask(server, "POST", f"/v1/models/{name}/unpin")[1]["is_pinned"] is False
    status, card = ask(server, "POST", f"/v1/models/{name}/unload")
    assert (status, card["state"], card["memory_bytes"]) == (200, "unloaded", 0)
    assert len(workers(server)) == 1


def test_the_models_in_use_stay(server: Running) -> None:
    status, refused = ask(server, "POST", "/v1/models/whisper-nano/unload")
    assert (status, refused["error"]["code"]) == (409, "model_is_default")
    status, refused = ask(server, "POST", "/v1/models/espeak/unload")
    assert (status, refused["error"]["code"]) == (404, "model_not_found")
    assert "whisper-nano" in refused["error"]["message"]
    status, refused = ask(server, "DELETE", "/v1/models/whisper-nano")
    assert (status, refused["error"]["code"]) == (404, "model_not_found")  # not in the folder


def test_a_model_is_downloaded_used_and_removed(server: Running, hub: FakeHub) -> None:
    offers = ask(server, "GET", "/v1/models/pull")[1]
    base = next(one for one in offers["available"] if one["name"] == "base")
    assert (base["is_installed"], base["is_multilingual"]) == (False, True)
    assert offers["free_bytes"] > 0
    status, states = ask(server, "POST", "/v1/models/pull", {"model": "base"})
    assert (status, states[0]["state"], states[-1]["state"]) == (200, "running", "done")
    offers = ask(server, "GET", "/v1/models/pull")[1]
    assert next(one for one in offers["available"] if one["name"] == "base")["is_installed"]
    assert [(one["model"], one["state"]) for one in offers["pulls"]] == [("base", "done")]
    body = {"model": "base", "stream": False}
    status, pull = ask(server, "POST", "/v1/models/pull", body)
    assert (status, pull["model"], pull["state"]) == (200, "base", "running")
    assert ask(server, "POST", "/v1/models/pull", {"model": "base"})[1][-1]["state"] == "done"
    assert ask(server, "DELETE", "/v1/models/base") == (204, None)
    assert ask(server, "DELETE", "/v1/models/base")[0] == 404


def test_wrong_requests_are_refused(server: Running) -> None:
    for body, status, code in (
        ({"model": "tinny"}, 404, "model_unknown"),
        ({"model": "http://127.0.0.1/a/b"}, 400, "invalid_value"),
        ({"model": 3}, 400, "invalid_value"),
        ({}, 400, "missing_required_parameter"),
        ({"model": "tiny", "name": 1}, 400, "invalid_value"),
        ({"model": "x" * 300}, 400, "invalid_value"),
    ):
        got, refused = ask(server, "POST", "/v1/models/pull", body)
        assert (got, refused["error"]["code"]) == (status, code), body
    status, refused = ask(server, "DELETE", "/v1/models/pull/base")
    assert (status, refused["error"]["code"]) == (404, "download_not_found")
    assert ask(server, "DELETE", "/v1/models/..%2F..%2Fetc")[0] == 404
