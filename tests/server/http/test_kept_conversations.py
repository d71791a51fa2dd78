"""`/v1/conversations` over HTTP, with a real database behind it."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from core.errors import RequestError
from core.http.json_body import decode_json_body
from devices.registry.database import open_database
from devices.registry.kept_conversations import KeptConversations
from pipeline.tools.calls.results import MAX_RESULT_CHARS
from server.http.kept_conversations import (
    MAX_ADDED_TURNS,
    MAX_TEXT_CHARS,
    MAX_TOOL_CALLS,
    KeptConversationsDoor,
    KeptToolCallBody,
    KeptTurnBody,
    NewTurns,
    kept_conversation_routes,
)
from tests.devices.registry.harness import Moment
from tests.web.client import Client, with_client

pytestmark = pytest.mark.live

URL = "/v1/conversations"
CALL = {"name": "HassTurnOn", "arguments": '{"area": "kitchen"}', "output": '{"targets": []}'}
TURN = {
    "id": "item_1",
    "said": "turn on the light",
    "reply": "The light is on.",
    "tool_calls": [CALL, {"name": "HassTurnOff", "arguments": "{}"}],
}


def play(folder: Path, scene: Callable[[Client], Awaitable[None]], days: int = 30) -> list[str]:
    """Runs the scene; returns the ids of conversations that memory forgot."""
    forgotten: list[str] = []

    async def use(client: Client) -> None:
        async with open_database(f"sqlite:///{folder}/devices.db") as database:
            opened.append(KeptConversations(database, Moment(), days))
            await scene(client)

    opened: list[KeptConversations] = []

    class Later:
        """The store, which can only be opened in the running loop."""

        def __getattr__(self, name: str) -> Any:
            return getattr(opened[0], name)

    store: Any = Later()
    with_client(kept_conversation_routes(KeptConversationsDoor(store, forgotten.append)), use)
    return forgotten


def test_a_conversation_is_kept_listed_read_and_deleted(tmp_path: Path) -> None:
    async def scene(client: Client) -> None:
        empty = await (await client.get(URL)).json()
        assert empty == {"days": 30, "conversations": []}
        assert (await client.put(f"{URL}/page_1")).status == 204
        added = await client.post(f"{URL}/page_1/turns", json={"turns": [TURN]})
        assert added.status == 204
        listed = await client.get(URL)
        assert listed.headers["Cache-Control"] == "no-store"
        (entry,) = (await listed.json())["conversations"]
        assert (entry["id"], entry["title"]) == ("page_1", "turn on the light")
        found = await (await client.get(f"{URL}/page_1")).json()
        assert found == {"id": "page_1", "turns": [TURN]}
        assert (await client.delete(f"{URL}/page_1")).status == 204
        assert (await client.get(f"{URL}/page_1")).status == 404
        assert (await client.put(f"{URL}/page_2")).status == 204
        assert (await client.delete(URL)).status == 204
        assert (await (await client.get(URL)).json())["conversations"] == []

    assert play(tmp_path, scene) == ["page_1", "page_2"]


def test_a_wrong_body_is_refused(tmp_path: Path) -> None:
    async def scene(client: Client) -> None:
        await client.put(f"{URL}/one")
        for turns in (
            [],
            [TURN] * (MAX_ADDED_TURNS + 1),
            [{**TURN, "said": "x" * (MAX_TEXT_CHARS + 1)}],
            [{**TURN, "id": ""}],
            [{**TURN, "sound": "x"}],
            [{**TURN, "tool_calls": [CALL] * (MAX_TOOL_CALLS + 1)}],
            [{**TURN, "tool_calls": [{**CALL, "name": "a b"}]}],
            [{**TURN, "tool_calls": [{**CALL, "output": "x" * (MAX_RESULT_CHARS + 1)}]}],
        ):
            refused = await client.post(f"{URL}/one/turns", json={"turns": turns})
            assert (refused.status, await refused.text()) == (400, "invalid_value")
        assert (await client.put(f"{URL}/{'x' * 65}")).status == 400
        missing = await client.post(f"{URL}/two/turns", json={"turns": [TURN]})
        assert missing.status == 404

    play(tmp_path, scene)


def test_arguments_that_no_session_would_take_back_are_refused_by_name() -> None:
    turns = {"turns": [{"id": "item_1", "tool_calls": [{**CALL, "arguments": "kitchen"}]}]}
    with pytest.raises(RequestError) as refused:
        decode_json_body(json.dumps(turns).encode(), NewTurns)
    assert refused.value.param == "turns[0].tool_calls[0]"
    assert "arguments are a JSON object as a string" in str(refused.value)


def test_a_server_that_keeps_none_says_so(tmp_path: Path) -> None:
    async def scene(client: Client) -> None:
        assert (await (await client.get(URL)).json())["days"] == 0
        refused = await client.put(f"{URL}/one")
        assert await refused.text() == "conversations_not_kept"

    play(tmp_path, scene, days=0)


def test_a_turn_shows_no_words_in_its_repr() -> None:
    call = KeptToolCallBody("Note", '{"text": "secret"}', "secret")
    assert repr(KeptTurnBody("item_1", "secret", "word", (call,))) == "KeptTurnBody(id='item_1')"
    assert repr(call) == "KeptToolCallBody(name='Note')"
