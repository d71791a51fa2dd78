"""OpenAI's Python client, unchanged, against a server process whose model is a scripted one."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from tests.clients.scripted_server import LONG, answering

pytestmark = pytest.mark.live

DEADLINE_S = 40
SET_LIGHT = {
    "type": "function",
    "name": "set_light",
    "description": "Turns a light on or off.",
    "parameters": {
        "type": "object",
        "properties": {"on": {"type": "boolean"}},
        "required": ["on"],
    },
}


def against(folder: Path, scene: Callable[[Any], Awaitable[None]]) -> None:
    """Connects the stock client to a started server and runs the scene."""

    async def main(url: str) -> None:
        client = AsyncOpenAI(
            api_key="key",
            base_url=f"{url}/v1",
            websocket_base_url=f"{url.replace('http', 'ws', 1)}/v1",
        )
        async with (
            asyncio.timeout(DEADLINE_S),
            client,
            client.realtime.connect(model="gpt-realtime") as connection,
        ):
            await scene(connection)

    with answering(folder) as server:
        asyncio.run(main(server.url))


async def until(connection: Any, kind: str) -> list[Any]:
    """Returns the events up to the first of this type; fails at an error event."""
    events = []
    async for event in connection:
        assert event.type != "error", event
        events.append(event)
        if event.type == kind:
            break
    return events


async def ask(connection: Any, words: str) -> None:
    part = {"type": "input_text", "text": words}
    item = {"type": "message", "role": "user", "content": [part]}
    await connection.conversation.item.create(item=item)
    await connection.response.create()


async def say(connection: Any, words: str) -> list[Any]:
    await ask(connection, words)
    return await until(connection, "response.done")


def test_a_tool_of_the_client_is_called_and_its_result_is_spoken(tmp_path: Path) -> None:
    async def scene(connection: Any) -> None:
        await connection.session.update(
            session={
                "type": "realtime",
                "tools": [SET_LIGHT],
                "tool_choice": "auto",
                "output_modalities": ["text"],
                "audio": {"input": {"turn_detection": None}},
            }
        )
        updated = (await until(connection, "session.updated"))[-1]
        assert updated.session.tools[0].name == "set_light"
        events = await say(connection, "light on please")
        [arguments] = [e for e in events if e.type == "response.function_call_arguments.done"]
        assert (arguments.name, json.loads(arguments.arguments)) == ("set_light", {"on": True})
        deltas = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
        assert "".join(deltas) == arguments.arguments
        message, call = events[-1].response.output
        assert (message.type, call.type, call.call_id) == (
            "message",
            "function_call",
            arguments.call_id,
        )
        assert events[-1].response.status == "completed"
        result = {
            "type": "function_call_output",
            "call_id": call.call_id,
            "output": '{"state":"on"}',
        }
        await connection.conversation.item.create(item=result)
        await connection.response.create()
        done = (await until(connection, "response.done"))[-1].response
        assert done.output[0].content[0].text == "It says on."
        assert (done.usage.input_tokens, done.usage.output_tokens) == (30, 7)

    against(tmp_path, scene)


def test_an_answer_is_truncated_to_the_audio_that_was_played(tmp_path: Path) -> None:
    async def scene(connection: Any) -> None:
        events = await say(connection, "count")
        sound = [e for e in events if e.type == "response.output_audio.delta"]
        item = events[-1].response.output[0]
        whole = item.content[0].transcript
        assert sound
        assert whole == LONG
        await connection.conversation.item.truncate(
            item_id=item.id, content_index=0, audio_end_ms=1000
        )
        truncated = (await until(connection, "conversation.item.truncated"))[-1]
        assert (truncated.item_id, truncated.audio_end_ms) == (item.id, 1000)
        await connection.conversation.item.retrieve(item_id=item.id)
        cut = (await until(connection, "conversation.item.retrieved"))[-1].item
        kept = cut.content[0].transcript
        assert kept
        assert whole.startswith(kept)
        assert len(kept) < len(whole)
        await connection.conversation.item.truncate(
            item_id=item.id, content_index=0, audio_end_ms=600_000
        )
        event = await connection.recv()
        assert (event.type, event.error.code) == ("error", "invalid_value")

    against(tmp_path, scene)


def test_a_running_answer_is_interrupted_and_truncated(tmp_path: Path) -> None:
    async def scene(connection: Any) -> None:
        await ask(connection, "never end")
        item_id = (await until(connection, "response.output_audio.delta"))[-1].item_id
        await connection.conversation.item.truncate(
            item_id=item_id, content_index=0, audio_end_ms=40
        )
        await until(connection, "conversation.item.truncated")
        await connection.response.cancel()
        done = (await until(connection, "response.done"))[-1].response
        assert done.status == "cancelled"
        assert done.status_details.reason == "client_cancelled"
        [item] = done.output
        assert (item.id, item.status) == (item_id, "incomplete")
        assert len(item.content[0].transcript or "") < 8
        await connection.response.cancel(event_id="late")
        event = await connection.recv()
        assert (event.type, event.error.code) == ("error", "response_cancel_not_active")
        assert event.error.event_id == "late"
        events = await say(connection, "count")  # the connection lives
        assert events[-1].response.status == "completed"

    against(tmp_path, scene)


def test_an_out_of_band_response_leaves_the_conversation_unchanged(tmp_path: Path) -> None:
    async def scene(connection: Any) -> None:
        await connection.response.create(
            response={
                "conversation": "none",
                "metadata": {"topic": "count"},
                "output_modalities": ["text"],
                "input": [
                    {
                        "type": "message",
                        "role": "user",
                        "content": [{"type": "input_text", "text": "count"}],
                    }
                ],
            }
        )
        events = await until(connection, "response.done")
        done = events[-1].response
        assert done.metadata == {"topic": "count"}
        assert done.conversation_id is None
        assert not [e for e in events if e.type.startswith("conversation.item")]
        await connection.conversation.item.delete(item_id=done.output[0].id)
        event = await connection.recv()
        assert (event.type, event.error.code) == ("error", "item_delete_invalid_item_id")

    against(tmp_path, scene)
