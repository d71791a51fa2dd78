"""Special requests of WIS's own clients: parameters, old paths, pages of other origins."""

import asyncio
from collections.abc import Mapping

import numpy as np
import pytest

from devices.fleet.ip_allowlist import KeylessPageSettings
from devices.willow.wis.door import WillowSettings
from devices.willow.wis.routes import routes
from server.http.auth import AccessGate
from server.net.allowlist import networks_of
from tests.devices.willow.wis.rtc.webrtc_client import calling
from tests.devices.willow.wis.servers import Scene, Server, TranslatingAsr, against
from tests.devices.willow.wis.uploads import ONE_TWO, form, pieces, wav
from tests.server.http.harness import KEY, error_of, serving

pytestmark = pytest.mark.live

ENGLISH = "in English: one two"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"task": "translate"}, {"text": ENGLISH}),
        ({"task": "Translate", "force_language": "de"}, {"text": ENGLISH, "language": "de"}),
        ({"task": "transcribe"}, {"text": "one two"}),
        ({"return_language": "en", "force_language": "en"}, {"text": "one two"}),
        ({"return_language": "de", "force_language": "de"}, {"text": "one two"}),
        (
            {"return_language": "en", "force_language": "de"},
            {"text": "one two", "translation": ENGLISH},
        ),
        (
            {"return_language": "EN", "detect_language": "true"},
            {"text": "one two", "language": "de", "translation": ENGLISH},
        ),
        ({"return_language": "en", "task": "translate"}, {"text": ENGLISH}),
    ],
)
@pytest.mark.parametrize("path", ["/api/asr", "/api/willow"])
def test_task_and_return_language_have_their_effect(
    path: str, query: Mapping[str, str], expected: Mapping[str, str]
) -> None:
    async def act(server: Server) -> None:
        data = form(wav()) if path == "/api/asr" else pieces(ONE_TWO.tobytes())
        response = await server.client.post(path, params=query, data=data)
        assert response.status == 200, await response.text()
        found = await response.json()
        assert {name: found[name] for name in expected} == expected
        assert ("translation" in found) == ("translation" in expected)

    against(act)


@pytest.mark.parametrize(
    ("query", "param", "allowed"),
    [
        ({"task": "sing"}, "task", "transcribe, translate"),
        ({"return_language": "fr"}, "return_language", "en"),
        ({"return_language": "fr", "force_language": "de"}, "return_language", "en, de"),
        ({"return_language": "fr", "task": "translate"}, "return_language", "en"),
    ],
)
def test_an_impossible_return_language_is_refused_by_name(
    query: Mapping[str, str], param: str, allowed: str
) -> None:
    async def act(server: Server) -> None:
        response = await server.client.post("/api/asr", params=query, data=form(wav()))
        error = await error_of(response)
        assert (response.status, error["param"]) == (400, param)
        assert f"allowed: {allowed}" in error["message"]

    against(act)


@pytest.mark.parametrize(
    ("query", "param"),
    [({"task": "translate"}, "task"), ({"return_language": "en"}, "return_language")],
)
def test_a_model_without_translation_is_named(query: Mapping[str, str], param: str) -> None:
    async def act(server: Server) -> None:
        asked = {**query, "force_language": "de"}
        response = await server.client.post("/api/asr", params=asked, data=form(wav()))
        error = await error_of(response)
        assert (response.status, error["code"]) == (400, "unsupported_parameter")
        assert error["param"] == param

    against(act, Scene(asr=TranslatingAsr(translates=False)))


def test_every_answer_names_its_model() -> None:
    async def act(server: Server) -> None:
        for path, data in (("/api/asr", form(wav())), ("/api/willow", pieces(ONE_TWO.tobytes()))):
            response = await server.client.post(f"{path}?model=large", data=data)
            assert (await response.json())["model"] == "level"
        async with calling(server.client, {"task": "translate", "force_language": "de"}) as caller:
            caller.send("start")
            await caller.say(np.repeat(ONE_TWO, 3)[: 48 * 500])
            caller.send("stop")
            assert (await caller.expect("infer"))["obj"]["model"] == "level"

    against(act)


def test_the_paths_of_the_wis_readme_exist() -> None:
    async def act(server: Server) -> None:
        assert await (await server.client.get("/ping")).json() == {"message": "pong"}
        moved = await server.client.get("/api/redoc", allow_redirects=False)
        assert (moved.status, moved.headers["Location"]) == (302, "/docs")
        async with server.client.ws_connect("/ws/chatbot") as chat:
            await chat.send_str("hello")
            assert "hello" in (await chat.receive_str())

    against(act)


PAGE = "https://kiosk.lan"


@pytest.mark.parametrize(
    ("headers", "path", "status"),
    [
        ({"Origin": PAGE}, "/api/asr", 200),
        ({"Origin": PAGE, "X-Forwarded-For": "10.0.0.9"}, "/api/asr", 401),
        ({"Origin": "https://other.lan"}, "/api/asr", 401),
        ({"Origin": f"{PAGE}:8443"}, "/api/asr", 401),
        ({"Origin": PAGE}, "/api/sts", 401),
        ({}, "/api/asr", 401),
        ({"X-API-Key": KEY}, "/api/asr", 200),
        ({"X-API-Key": KEY, "Origin": "https://other.lan"}, "/api/asr", 200),
        ({"X-API-Key": "wrong-key-0123456789"}, "/api/asr", 401),
    ],
)
def test_pages_of_named_origins_need_no_key(
    headers: Mapping[str, str], path: str, status: int
) -> None:
    async def act() -> None:
        pages = KeylessPageSettings(frozenset({PAGE}), networks_of((), "test"))
        door = Scene(settings=WillowSettings(pages=pages)).door()
        async with serving(routes(door), gate=AccessGate(is_local=False, key=KEY)) as client:
            response = await client.post(path, data=form(wav()), headers=headers)
            assert response.status == status, await response.text()
            if status == 200 and "Origin" in headers:
                assert response.headers["Access-Control-Allow-Origin"] == headers["Origin"]

    asyncio.run(act())


@pytest.mark.parametrize(
    ("origin", "peer", "is_admitted"),
    [
        (PAGE, "127.0.0.1", True),
        (PAGE, "192.168.1.7", True),
        (PAGE, "203.0.113.5", False),
        (PAGE, None, False),
        ("null", "127.0.0.1", False),
    ],
)
def test_a_page_is_counted_by_the_address_of_its_browser(
    origin: str, peer: str | None, is_admitted: bool
) -> None:
    pages = KeylessPageSettings(frozenset({PAGE}), networks_of(("192.168.1.0/24",), "test"))
    assert pages.admits(origin, peer) == is_admitted
