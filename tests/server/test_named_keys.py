"""Named keys on a whole server: made with the command line, used at every kind of door."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import ClientSession, ClientWebSocketResponse, WSServerHandshakeError

from core.access.named_key import SCOPES
from tests.raw_peer import RawPeer
from tests.server.process import Running, run, serving
from tests.signaling.whip.client import Publisher, beeps, publishing, read_events

pytestmark = pytest.mark.live

TIMEOUT_S = 30
VOICE = "de"
SECRET = "Call me Captain Anna."
SPOKEN = {"model": "tts-1", "input": "One.", "voice": "alloy"}


@dataclass(frozen=True, slots=True)
class Keyed:
    """A server that needs keys, and the command line of its machine."""

    running: Running
    folder: Path

    @property
    def url(self) -> str:
        return self.running.url

    def keys(self, *arguments: str) -> str:
        """Runs `earshot keys`; returns what it prints."""
        done = run(self.folder, "keys", *arguments, "--url", self.url)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def add(self, name: str, *arguments: str) -> str:
        return self.keys("add", name, *arguments).strip()

    async def revoke(self, name: str) -> None:
        await asyncio.to_thread(self.keys, "revoke", name)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    folder = tmp_path_factory.mktemp("keys")
    with serving(folder, settings={"EARSHOT_REQUIRE_KEY": "true"}) as running:
        yield Keyed(running, folder)


@pytest.fixture(autouse=True)
def no_keys_are_left(server: Keyed) -> Iterator[None]:
    yield
    owner = (server.folder / "earshot" / "api-key").read_text().strip()

    async def revoke_all() -> None:
        async with client(server, owner) as http:
            for entry in (await (await http.get("/v1/keys")).json())["keys"]:
                assert (await http.delete(f"/v1/keys/{entry['name']}")).status == 204

    asyncio.run(revoke_all())


def get(server: Keyed, path: str, key: str) -> tuple[int, Any]:
    """Returns status and JSON of a path."""

    async def main() -> tuple[int, Any]:
        async with client(server, key) as http:
            response = await http.get(path)
            is_json = response.content_type == "application/json"
            return response.status, await response.json() if is_json else None

    return asyncio.run(main())


def client(server: Keyed, key: str) -> ClientSession:
    headers = {"Authorization": f"Bearer {key}"}
    return ClientSession(server.url, headers=headers, timeout=aiohttp.ClientTimeout(TIMEOUT_S))


@asynccontextmanager
async def talking(http: ClientSession, query: str = "") -> AsyncIterator[ClientWebSocketResponse]:
    async with http.ws_connect(f"/v1/realtime{query}") as ws:
        assert (await ws.receive_json(timeout=TIMEOUT_S))["type"] == "session.created"
        yield ws


async def refused(http: ClientSession, path: str = "/v1/realtime") -> tuple[int, str]:
    """Returns status and `Retry-After` of a session that is not opened."""
    with pytest.raises(WSServerHandshakeError) as refusal:
        await http.ws_connect(path)
    headers = refusal.value.headers
    return refusal.value.status, headers.get("Retry-After", "") if headers else ""


async def closed(ws: ClientWebSocketResponse) -> tuple[int | None, str]:
    """Waits until the server closes; returns code and reason."""
    while (message := await ws.receive(timeout=TIMEOUT_S)).type is aiohttp.WSMsgType.TEXT:
        pass
    return ws.close_code, str(message.extra)


async def code_of(response: aiohttp.ClientResponse) -> tuple[int, str]:
    return response.status, (await response.json())["error"]["code"]


def test_every_route_states_one_scope(server: Keyed) -> None:
    key = server.add("reader")
    _, described = get(server, "/openapi.json", key)
    found: dict[str, list[str]] = {}
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            if operation["security"]:  # empty: public
                ((scope,),) = (needed["key"] for needed in operation["security"])
                assert scope in SCOPES
                found.setdefault(scope, []).append(f"{method} {path}")
    managing = (
        "/v1/devices",
        "/v1/areas",
        "/v1/keys",
        "/v1/settings",
        "/v1/server",
        "/v1/esphome/satellites",
        "/v1/speakers/{id}/telephone_numbers",
        "/earshot/home",
        "/metrics",
    )
    for scope, routes in found.items():
        for route in routes:
            assert (scope == "manage") == route.partition(" ")[2].startswith(managing), route
    # Every path of that list refuses a key without its scope, whatever its handler is.
    for route in found["manage"]:
        if route.startswith("get ") and "{" not in route:
            status, body = get(server, route.removeprefix("get "), key)
            assert (status, body["error"]["code"]) == (403, "missing_scope"), route
            assert "does not have the scope 'manage'" in body["error"]["message"]


def test_a_key_is_shown_once_listed_and_revoked(server: Keyed) -> None:
    key = server.add("anna", "--scopes", "talk,models", "--sessions", "2", "--requests", "30")
    assert "anna  talk, models  0 of 2    30            never" in server.keys("list")
    assert get(server, "/v1/models", key)[0] == 200
    (entry,) = json.loads(server.keys("list", "--json"))["keys"]
    assert (entry["name"], entry["scopes"], entry["sessions"]) == ("anna", ["talk", "models"], 0)
    assert entry["last_used"] is not None
    again = run(server.folder, "keys", "add", "anna", "--url", server.url)
    assert (again.returncode, "'anna' already" in again.stderr) == (1, True)
    assert server.keys("revoke", "anna") == "revoked: anna\n"
    gone = get(server, "/v1/models", key)
    assert (gone[0], gone[1]["error"]["code"]) == (401, "invalid_api_key")
    assert server.keys("list") == "there are no named keys\n"
    secret = key.removeprefix("earshot_")
    assert not [line for line in server.running.said if secret in line]
    database = server.folder / "earshot"
    assert not [one for one in database.iterdir() if secret.encode() in one.read_bytes()]


async def begun(http: ClientSession, query: str = "") -> dict[str, Any]:
    """Begins a session; returns its settings as `session.created` shows them."""
    async with http.ws_connect(f"/v1/realtime{query}") as ws:
        session: dict[str, Any] = (await ws.receive_json(timeout=TIMEOUT_S))["session"]
        return session


def test_every_session_of_a_key_begins_with_its_settings(server: Keyed) -> None:
    settings = ("--voice", VOICE, "--language", "de", "--speed", "1.25")
    anna = server.add("anna", *settings, "--instructions", SECRET)
    ben = server.add("ben")

    async def main() -> None:
        async with client(server, anna) as http:
            session = await begun(http)
            assert session["instructions"] == SECRET
            output, heard = session["audio"]["output"], session["audio"]["input"]["transcription"]
            assert (output["voice"], output["speed"], heard["language"]) == (VOICE, 1.25, "de")
            secret = await (await http.post("/v1/realtime/client_secrets", json={})).json()
            assert secret["session"]["instructions"] == SECRET
            await asyncio.to_thread(server.keys, "set", "anna", "--voice", "", "--speed", "")
            session = await begun(http)
            assert session["audio"]["output"]["voice"] != VOICE
            assert (session["audio"]["output"]["speed"], session["instructions"]) == (1.0, SECRET)
        async with client(server, secret["value"]) as http:
            assert (await begun(http))["instructions"] == SECRET
        async with client(server, ben) as http:
            session = await begun(http)
            assert session["instructions"] != SECRET
            assert session["audio"]["input"]["transcription"]["language"] is None

    asyncio.run(main())
    entries = json.loads(server.keys("list", "--json"))["keys"]
    profiles = {entry["name"]: entry["profile"] for entry in entries}
    assert (profiles["anna"]["instructions"], profiles["anna"]["language"]) == (SECRET, "de")
    assert profiles["ben"]["instructions"] == ""
    assert not [line for line in server.running.said if SECRET in line]


def test_speech_has_the_voice_and_the_speed_of_the_key(server: Keyed) -> None:
    slow, plain = server.add("anna", "--speed", "0.5", "--voice", VOICE), server.add("ben")

    async def seconds(key: str, **fields: object) -> float:
        spoken = {**SPOKEN, "input": "One two three.", "response_format": "pcm", **fields}
        async with client(server, key) as http:
            sound = await (await http.post("/v1/audio/speech", json=spoken)).read()
            return len(sound) / 48_000

    async def main() -> None:
        usual = await seconds(plain)
        assert await seconds(slow) > 1.5 * usual
        assert await seconds(slow, speed=1) < 1.3 * usual

    asyncio.run(main())


def test_the_assistant_answers_in_the_language_of_the_key(server: Keyed) -> None:
    async def ask(key: str) -> str:
        body = {"model": "assistant", "messages": [{"role": "user", "content": "xyzzy"}]}
        async with client(server, key) as http:
            answer = await (await http.post("/v1/chat/completions", json=body)).json()
            return str(answer["choices"][0]["message"]["content"])

    assert "nicht verstanden" in asyncio.run(ask(server.add("anna", "--language", "de")))
    assert "did not understand" in asyncio.run(ask(server.add("ben")))


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["add", "a b"], 1, "1 to 64 of A-Z a-z 0-9"),
        (["add", "a", "--scopes", "talk,fly"], 1, "there are talk, manage, models"),
        (["add", "a", "--scopes", ""], 1, "at least one scope"),
        (["add", "a", "--sessions", "0"], 1, "max_sessions"),
        (["add", "a", "--requests", "x"], 2, "--requests"),
        (["revoke", "nobody"], 1, "there is no key 'nobody'"),
        (["set", "nobody", "--voice", ""], 1, "there is no key 'nobody'"),
        (["set", "nobody"], 2, "at least one of --voice, --language"),
        (["add", "a", "--voice", "siren"], 1, "profile.voice: no voice 'siren'; similar: "),
        (["add", "a", "--language", "xx"], 1, "profile.language: language 'xx' is not supported"),
        (["add", "a", "--asr", "ears"], 1, "profile.asr: "),
        (["add", "a", "--speed", "9"], 1, "profile.speed: "),
        (["add", "a", "--speed", "fast"], 2, "'fast' is not a number"),
    ],
)
def test_a_wrong_command_names_what_is_wrong(
    server: Keyed, arguments: list[str], code: int, error: str
) -> None:
    done = run(server.folder, "keys", *arguments, "--url", server.url)
    assert done.returncode == code
    assert error in done.stderr


def test_a_key_manages_only_what_it_may(server: Keyed) -> None:
    admin = server.add("admin", "--scopes", "manage")

    async def main() -> None:
        async with client(server, admin) as http:
            assert await code_of(await http.get("/v1/models")) == (403, "missing_scope")
            assert await refused(http) == (403, "")
            assert (await http.get("/v1/devices")).status == 200
            assert (await http.get("/metrics")).status == 200
            wanted: dict[str, Any] = {"name": "child", "scopes": ["talk"]}
            response = await http.post("/v1/keys", json=wanted)
            assert await code_of(response) == (403, "scope_not_held")
            response = await http.post("/v1/keys", json={**wanted, "scopes": ["manage"]})
            assert response.status == 201
            assert response.headers["Cache-Control"] == "no-store"
            made = await response.json()
            async with client(server, made["key"]) as child:
                assert (await child.get("/v1/keys")).status == 200
                assert (await child.delete("/v1/keys/child")).status == 204
                assert await code_of(await child.get("/v1/keys")) == (401, "invalid_api_key")
            # Without its scope, a public path shows what everybody sees.
            assert await (await http.get("/health")).json() == {"status": "ready"}

    asyncio.run(main())


def test_every_kind_of_http_door_takes_a_key(server: Keyed) -> None:
    key = server.add("doors")

    async def main() -> None:
        async with client(server, key) as http:
            spoken = await http.post("/v1/audio/speech", json=SPOKEN)
            assert spoken.status == 200, await spoken.text()
            form = aiohttp.FormData()
            form.add_field("file", await spoken.read(), filename="one.mp3")
            form.add_field("model", "whisper-1")
            transcribed = await http.post("/v1/audio/transcriptions", data=form)
            assert transcribed.status == 200, await transcribed.text()
            asked = await http.get("/api/chatbot", params={"text": "what time is it"})
            assert asked.status == 200, await asked.text()
            assert (await http.get("/earshot/ice")).status == 200
            assert (await http.get("/whip")).status == 204
            async with http.ws_connect("/api/ws/chatbot") as chat:
                await chat.send_str("what time is it")
                answer = await chat.receive(timeout=TIMEOUT_S)
                assert answer.type is aiohttp.WSMsgType.TEXT
                await server.revoke("doors")
                assert await closed(chat) == (1008, "key_revoked")
        headers = {"X-API-Key": key}
        async with ClientSession(server.url, headers=headers) as http:
            assert (await http.get("/v1/models")).status == 401

    asyncio.run(main())


@pytest.mark.parametrize("how", ["header", "password", "subprotocol"])
def test_a_key_comes_in_every_way_in_which_the_servers_key_comes(server: Keyed, how: str) -> None:
    key = server.add("ways")

    async def main() -> None:
        protocol = f"realtime, openai-insecure-api-key.{key}"
        headers: dict[str, str] = {
            "header": {"X-API-Key": key},
            "password": {"Authorization": aiohttp.encode_basic_auth("anna", key)},
            "subprotocol": {"Sec-WebSocket-Protocol": protocol},
        }[how]
        async with ClientSession(server.url, headers=headers) as http:
            assert (await http.get("/v1/models")).status == 200

    asyncio.run(main())


def test_a_board_checks_in_without_a_key(server: Keyed) -> None:
    async def main() -> None:
        board = {"Device-Id": "a1:b2:c3:d4:e5:f6"}
        async with ClientSession(server.url) as http:
            response = await http.post("/xiaozhi/ota/", data=b"{}", headers=board)
            assert len((await response.json())["activation"]["code"]) == 6

    asyncio.run(main())


def test_sessions_of_a_key_are_limited_shown_and_end_with_it(server: Keyed) -> None:
    key = server.add("limited", "--sessions", "1")

    async def main() -> None:
        async with client(server, key) as http:
            secret = await http.post("/v1/realtime/client_secrets", json={})
            async with talking(http) as ws:
                assert await refused(http) == (429, "5")
                # A client secret has the limits of the key that made it.
                async with client(server, (await secret.json())["value"]) as browser:
                    assert await refused(browser) == (429, "5")
                    assert "1 of 1" in await asyncio.to_thread(server.keys, "list")
                    await server.revoke("limited")
                    assert await closed(ws) == (1008, "key_revoked")
                    assert await refused(browser) == (401, "")
            assert await refused(http) == (401, "")

    asyncio.run(main())


def test_a_session_of_a_client_secret_ends_with_the_key_that_made_it(server: Keyed) -> None:
    key = server.add("maker")

    async def main() -> None:
        async with client(server, key) as http:
            secret = await http.post("/v1/realtime/client_secrets", json={})
        async with client(server, (await secret.json())["value"]) as browser:
            async with talking(browser) as ws:
                await server.revoke("maker")
                assert await closed(ws) == (1008, "key_revoked")
            assert await refused(browser) == (401, "")

    asyncio.run(main())


def test_requests_of_a_key_are_limited(server: Keyed) -> None:
    key = server.add("hasty", "--requests", "2")

    async def main() -> None:
        async with client(server, key) as http:
            for _ in range(2):
                assert (await http.get("/v1/models")).status == 200
            response = await http.get("/v1/models")
            assert await code_of(response) == (429, "too_many_requests")
            assert 1 <= int(response.headers["Retry-After"]) <= 30

    asyncio.run(main())


def test_a_publication_over_whip_ends_with_its_key(server: Keyed) -> None:
    key = server.add("camera", "--sessions", "1")

    async def main() -> None:
        async with client(server, key) as http, publishing(http, beeps(100)) as publisher:
            second = await Publisher(http, publisher.raw).http.post(
                "/whip", data=publisher.offer, headers={"Content-Type": "application/sdp"}
            )
            assert await code_of(second) == (429, "too_many_sessions")
            stream = await http.get(f"{publisher.location}/events")
            assert stream.status == 200
            async with client(server, server.add("other")) as other:
                foreign = await other.delete(publisher.location)
                assert await code_of(foreign) == (404, "publication_not_found")
            await server.revoke("camera")
            await asyncio.wait_for(publisher.raw.ended.wait(), TIMEOUT_S)
            with pytest.raises(aiohttp.ClientPayloadError):
                _ = [event async for event in read_events(stream)]

    asyncio.run(main())


def test_a_call_over_webrtc_ends_with_its_key(server: Keyed) -> None:
    key = server.add("caller", "--sessions", "1", "--instructions", SECRET)

    async def main() -> None:
        peer = RawPeer(beeps(100))
        peer.channel("oai-events")
        async with client(server, key) as http:
            headers = {"Content-Type": "application/sdp"}
            offer = await peer.offer()
            answer = await http.post("/v1/realtime/calls", data=offer, headers=headers)
            assert answer.status == 201, await answer.text()
            await peer.accept(await answer.text())
            created = json.loads(await peer.texts.get())
            assert created["type"] == "session.created"
            assert created["session"]["instructions"] == SECRET
            assert await refused(http) == (429, "5")
            call_id = answer.headers["Location"].rpartition("/")[2]
            async with client(server, server.add("other")) as other:
                path = f"/v1/realtime/calls/{call_id}/hangup"
                assert await code_of(await other.post(path)) == (404, "call_not_found")
            async with http.ws_connect(f"/v1/realtime?call_id={call_id}") as sideband:
                await server.revoke("caller")
                assert await closed(sideband) == (1008, "key_revoked")
            await asyncio.wait_for(peer.ended.wait(), TIMEOUT_S)
        await peer.close()

    asyncio.run(main())


def test_a_call_of_willows_protocol_ends_with_its_key(server: Keyed) -> None:
    key = server.add("widget", "--sessions", "1")

    async def main() -> None:
        peer = RawPeer(beeps(100), "sendonly")
        peer.channel("chat")
        async with client(server, key) as http:
            offer = {"sdp": await peer.offer(), "type": "offer"}
            answer = await http.post("/api/rtc/asr", json=offer)
            assert answer.status == 200, await answer.text()
            await peer.accept((await answer.json(content_type=None))["sdp"])
            await asyncio.wait_for(peer.connected.wait(), TIMEOUT_S)
            second = await http.post("/api/rtc/asr", json=offer)
            assert await code_of(second) == (429, "too_many_sessions")
            assert await refused(http) == (429, "5")
            await server.revoke("widget")
            await asyncio.wait_for(peer.ended.wait(), TIMEOUT_S)
        await peer.close()

    asyncio.run(main())


def test_a_chat_of_willows_protocol_is_a_session_of_its_key(server: Keyed) -> None:
    key = server.add("chatter", "--sessions", "1")

    async def main() -> None:
        async with client(server, key) as http, http.ws_connect("/api/ws/chatbot"):
            assert "1 of 1" in await asyncio.to_thread(server.keys, "list")
            assert await refused(http, "/api/ws/chatbot") == (429, "5")
            assert await refused(http) == (429, "5")

    asyncio.run(main())


def test_conversations_belong_to_the_key_that_began_them(server: Keyed) -> None:
    anna, ben = server.add("anna"), server.add("ben")

    async def remembered(key: str, words: str = "") -> str | None:
        """Returns the instructions with which the conversation `den` begins for this key."""
        async with (
            client(server, key) as http,
            http.ws_connect("/v1/realtime?conversation_id=den") as ws,
        ):
            created = await ws.receive_json(timeout=TIMEOUT_S)
            assert created["session"]["earshot"]["conversation_id"] == "den"
            if words:
                await ws.send_json(
                    {
                        "type": "session.update",
                        "session": {"type": "realtime", "instructions": words},
                    }
                )
                while (await ws.receive_json(timeout=TIMEOUT_S))["type"] != "session.updated":
                    pass
            shown: str | None = created["session"].get("instructions")
            return shown

    async def main() -> None:
        usual = await remembered(anna, "Speak as a pirate.")
        assert await remembered(anna) == "Speak as a pirate."
        assert await remembered(ben) == usual
        await server.revoke("anna")

    asyncio.run(main())
    again = server.add("anna")
    assert asyncio.run(remembered(again)) != "Speak as a pirate."
