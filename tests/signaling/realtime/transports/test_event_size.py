"""A client whose transport takes no long events stays connected and gets as much as fits."""

import asyncio
import json
from base64 import b64encode
from typing import Any

import pytest

from core.conversation.events import ItemRetrieved
from core.conversation.items import MessageItem, TextPart
from core.errors import RequestError
from signaling.realtime.connection import RealtimeConnection
from signaling.realtime.event_connection import DisconnectReason
from signaling.realtime.session.settings import SessionConfiguration
from tests.signaling.realtime.fakes import Client, converse, play

LIMIT = 4000
IMAGE = f"data:image/png;base64,{b64encode(bytes.fromhex('89504e470d0a1a0a') * 500).decode()}"

Event = dict[str, Any]


def item(**part: str) -> Event:
    message = {"type": "message", "id": "item_1", "role": "user", "content": [part]}
    return {"type": "conversation.item.create", "event_id": "c1", "item": message}


def update(**session: Any) -> Event:
    session = {"type": "realtime", **session}
    return {"type": "session.update", "event_id": "c1", "session": session}


TOO_LARGE = [
    (update(instructions="x" * LIMIT), "session"),
    (update(instructions="ä" * (LIMIT // 2)), "session"),
    (update(tools=[{"type": "function", "name": "f", "description": "x" * LIMIT}]), "session"),
    (item(type="input_text", text="x" * LIMIT), "item"),
]


@pytest.mark.parametrize(("event", "param"), TOO_LARGE)
def test_an_update_whose_event_would_be_too_large_is_refused(event: Event, param: str) -> None:
    client = Client()
    [error] = converse(client, event, max_event_bytes=LIMIT)
    assert (error["error"]["code"], error["error"]["param"]) == ("event_too_large", param)
    assert error["error"]["event_id"] == "c1"
    assert client.session.asked == []
    converse(allowed := Client(), event)
    assert len(allowed.session.asked) == 1


def test_an_image_is_accepted_and_shown_without_its_data() -> None:
    client = Client()
    picture = item(type="input_image", image_url=IMAGE)
    assert len(json.dumps(picture)) > LIMIT
    assert converse(client, picture, max_event_bytes=LIMIT) == []
    [(_, added, _)] = client.session.asked
    retrieved = told(ItemRetrieved(added), LIMIT)
    assert retrieved["item"]["content"][0]["image_url"] is None
    whole = told(ItemRetrieved(added), None)
    assert whole["item"]["content"][0]["image_url"] == IMAGE


def test_an_item_that_is_too_large_to_show_becomes_an_error_event() -> None:
    """For example an item that was in the conversation before this client connected."""
    long = MessageItem("item_1", "assistant", (TextPart("x" * LIMIT),))
    error = told(ItemRetrieved(long), LIMIT)
    assert (error["type"], error["error"]["code"]) == ("error", "event_too_large")
    assert error["error"]["type"] == "server_error"
    assert "conversation.item.retrieved" in error["error"]["message"]


def told(happened: ItemRetrieved, limit: int | None) -> Event:
    client = Client()

    async def scene(connection: RealtimeConnection) -> None:
        client.session.events.put(happened)
        connection.close(DisconnectReason.SERVER)

    play(client, scene, max_event_bytes=limit)
    return client.sent[-1]


def test_a_session_that_is_too_large_to_show_opens_no_connection() -> None:
    async def connect() -> None:
        Client().connection(SessionConfiguration(), max_event_bytes=500)

    with pytest.raises(RequestError) as refused:
        asyncio.run(connect())
    assert (refused.value.code, refused.value.param) == ("event_too_large", "session")
