"""Items that clients create: every type of content as values, and its errors."""

import json
from base64 import b64encode
from typing import Any

import numpy as np
import pytest

from core.conversation.items import (
    AudioPart,
    FunctionCallItem,
    FunctionOutputItem,
    ImagePart,
    McpApprovalRequestItem,
    McpListItem,
    McpToolDefinition,
    MessageItem,
    TextPart,
)
from media.codecs import g711
from pipeline.user_turn.controller import MAX_HELD_MS
from signaling.realtime.protocol.client_events import MAX_PARTS
from signaling.realtime.protocol.decode import MAX_CONTROL_EVENT_BYTES
from signaling.realtime.protocol.server_events import item_json
from signaling.realtime.session.items import MAX_IMAGE_CHARS
from tests.signaling.realtime.fakes import Client, converse

Json = dict[str, Any]

PNG = b"\x89PNG\r\n\x1a\n" + bytes(16)
JPEG = b"\xff\xd8\xff\xe0" + bytes(16)


def base64(data: bytes) -> str:
    return b64encode(data).decode()


def url(data: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64(data)}"


def pcm(ms: int, level: int = 1000) -> bytes:
    return np.full(24 * ms, level, "<i2").tobytes()


def message(role: str, *content: Json, **fields: Any) -> Json:
    return {"type": "message", "id": "i", "role": role, "content": list(content), **fields}


def create(item: Json, **fields: Any) -> Json:
    return {"type": "conversation.item.create", "event_id": "c1", "item": item, **fields}


TEXT = {"type": "input_text", "text": "hi"}
IMAGE = {"type": "input_image", "image_url": url(PNG)}
SPOKEN = {"type": "input_audio", "audio": base64(pcm(200))}
CALL = {"type": "function_call", "id": "i", "name": "f", "arguments": "{}"}
TOOL = {"name": "cook it", "input_schema": {"type": "object"}, "description": "Cooks."}
LIST = {"type": "mcp_list_tools", "id": "i", "server_label": "kitchen", "tools": [TOOL]}
WANTED = {
    "type": "mcp_approval_request",
    "id": "i",
    "server_label": "kitchen",
    "name": "cook it",
    "arguments": "{}",
}
DEEP = json.loads('{"a":' * 66 + "1" + "}" * 66)
RESULT = {"type": "function_call_output", "id": "i", "call_id": "c", "output": ""}

TAKEN: list[tuple[Json, Any]] = [
    (message("system", TEXT), MessageItem("i", "system", (TextPart("hi"),))),
    (message("user", TEXT), MessageItem("i", "user", (TextPart("hi"),))),
    (message("user"), MessageItem("i", "user")),
    (
        message("user", TEXT, {**IMAGE, "detail": "low"}),
        MessageItem("i", "user", (TextPart("hi"), ImagePart(url(PNG), "low"))),
    ),
    (
        message("user", {**IMAGE, "image_url": url(JPEG, "jpeg")}),
        MessageItem("i", "user", (ImagePart(url(JPEG, "jpeg")),)),
    ),
    (
        message("user", {"type": "input_audio", "transcript": "hi"}),
        MessageItem("i", "user", (AudioPart("hi"),)),
    ),
    (message("user", SPOKEN), MessageItem("i", "user", (AudioPart(),))),
    (
        message("user", {**SPOKEN, "transcript": "what they say it is"}),
        MessageItem("i", "user", (AudioPart(),)),
    ),
    (
        message("assistant", {"type": "output_text", "text": "Hi."}, status="incomplete"),
        MessageItem("i", "assistant", (TextPart("Hi."),)),
    ),
    (
        message("assistant", {"type": "output_audio", "transcript": "Hi.", "audio": "AAAA"}),
        MessageItem("i", "assistant", (AudioPart("Hi."),)),
    ),
    ({**CALL, "call_id": "c"}, FunctionCallItem("i", "c", "f", "{}")),
    (
        LIST,
        McpListItem("i", "kitchen", (McpToolDefinition("cook it", "Cooks.", {"type": "object"}),)),
    ),
    (WANTED, McpApprovalRequestItem("i", "kitchen", "cook it", "{}", "cook_it")),
    ({**RESULT, "object": "realtime.item"}, FunctionOutputItem("i", "c", "")),
]


@pytest.mark.parametrize(("item", "taken"), TAKEN)
@pytest.mark.parametrize("previous", [None, "root", "item_1"])
def test_a_valid_item_is_added(item: Json, taken: Any, previous: str | None) -> None:
    client = Client()
    assert converse(client, create(item, previous_item_id=previous)) == []
    assert client.session.asked == [("add_item", taken, previous)]


def test_audio_of_an_item_is_converted_to_16_khz() -> None:
    client = Client()
    quiet = {"type": "input_audio", "audio": base64(pcm(300, 0))}
    converse(client, create(message("user", SPOKEN, TEXT, quiet)))
    said = client.session.recordings
    assert {index: len(heard) for index, heard in said.items()} == {0: 3200, 2: 4800}
    assert np.abs(said[0][800:2400].astype(int) - 1000).max() < 20


def test_audio_of_an_item_is_in_the_format_of_the_session() -> None:
    client = Client()
    audio = {"input": {"format": {"type": "audio/pcmu"}}}
    law = g711.encode(np.full(8000, 1000, np.int16), "mu")
    converse(
        client,
        {"type": "session.update", "session": {"type": "realtime", "audio": audio}},
        create(message("user", {"type": "input_audio", "audio": base64(law)})),
    )
    assert len(client.session.recordings[0]) == 16_000


MISSING = "missing_required_parameter"
LONG = "x" * (MAX_CONTROL_EVENT_BYTES + 1)

REFUSED: list[tuple[str, Json, str, str | None]] = [
    ("no item", {"item": None}, "invalid_type", "item"),
    ("no type", {"item": {"role": "user"}}, MISSING, "item.type"),
    ("unknown type", {"item": {"type": "computer_call"}}, "invalid_value", "item.type"),
    ("no tools", {"item": {"type": "mcp_list_tools", "server_label": "k"}}, MISSING, "item.tools"),
    (
        "too deep a schema",
        {"item": {**LIST, "tools": [{"name": "t", "input_schema": DEEP}]}},
        "invalid_value",
        "item.tools[0].input_schema",
    ),
    ("no role", {"item": {"type": "message", "content": []}}, MISSING, None),
    ("role", {"item": message("tool")}, "invalid_value", "item.role"),
    ("content", {"item": {**message("user"), "content": "hi"}}, "invalid_type", "item.content"),
    ("part", {"item": message("user", "hi")}, "invalid_type", "item.content[0]"),  # type: ignore[arg-type]
    ("typeless", {"item": message("user", {})}, MISSING, None),
    ("odd part", {"item": message("user", {"type": "video"})}, "invalid_value", None),
    ("extra", {"item": message("user", {**TEXT, "x": 1})}, "unknown_parameter", None),
    ("extra of item", {"item": message("user", x=1)}, "unknown_parameter", "item.x"),
    ("extra of event", {"item": message("user"), "x": 1}, "unknown_parameter", "x"),
    ("status", {"item": message("user", status="done")}, "invalid_value", "item.status"),
    ("empty id", {"item": message("user", id="")}, "invalid_value", "item.id"),
    ("long id", {"item": message("user", id="x" * 65)}, "invalid_value", "item.id"),
    ("previous", {"item": message("user"), "previous_item_id": 7}, "invalid_type", None),
    ("parts", {"item": message("user", *[TEXT] * (MAX_PARTS + 1))}, "invalid_value", None),
    ("text", {"item": message("user", {"type": "input_text"})}, MISSING, None),
    ("text is 7", {"item": message("user", {**TEXT, "text": 7})}, "invalid_type", None),
    ("long text", {"item": message("user", {**TEXT, "text": LONG})}, "event_too_large", None),
    ("user out", {"item": message("user", {"type": "output_text"})}, "invalid_value", None),
    ("assistant in", {"item": message("assistant", TEXT)}, "invalid_value", None),
    ("system sees", {"item": message("system", IMAGE)}, "invalid_value", None),
    ("system hears", {"item": message("system", SPOKEN)}, "invalid_value", None),
    (
        "assistant's sound alone",
        {"item": message("assistant", {"type": "output_audio", "audio": "AAAA"})},
        MISSING,
        "item.content[0].transcript",
    ),
    (
        "silent audio",
        {"item": message("user", {"type": "input_audio"})},
        MISSING,
        "item.content[0].audio",
    ),
    (
        "no base64",
        {"item": message("user", TEXT, {**SPOKEN, "audio": "%"})},
        "invalid_audio",
        "item.content[1].audio",
    ),
    (
        "half a sample",
        {"item": message("user", {**SPOKEN, "audio": "AAAA"})},
        "invalid_audio",
        "item.content[0].audio",
    ),
    (
        "too short",
        {"item": message("user", {**SPOKEN, "audio": base64(pcm(99))})},
        "invalid_audio",
        "item.content[0].audio",
    ),
    (
        "too long",
        {"item": message("user", {**SPOKEN, "audio": base64(pcm(MAX_HELD_MS)[:-2])}, SPOKEN)},
        "invalid_audio",
        "item.content",
    ),
    ("no image", {"item": message("user", {"type": "input_image"})}, MISSING, None),
    (
        "an address",
        {"item": message("user", {**IMAGE, "image_url": "http://127.0.0.1/x.png"})},
        "invalid_image",
        "item.content[0].image_url",
    ),
    (
        "another format",
        {"item": message("user", {**IMAGE, "image_url": url(PNG, "svg+xml")})},
        "invalid_image",
        "item.content[0].image_url",
    ),
    (
        "no image inside",
        {"item": message("user", {**IMAGE, "image_url": url(b"<svg/>")})},
        "invalid_image",
        "item.content[0].image_url",
    ),
    (
        "too large an image",
        {"item": message("user", {**IMAGE, "image_url": url(PNG + bytes(MAX_IMAGE_CHARS))})},
        "image_too_large",
        "item.content[0].image_url",
    ),
    ("detail", {"item": message("user", {**IMAGE, "detail": "max"})}, "invalid_value", None),
    ("no name", {"item": {"type": "function_call", "arguments": "{}"}}, MISSING, None),
    ("arguments", {"item": {**CALL, "arguments": {}}}, "invalid_type", "item.arguments"),
    ("no call", {"item": {"type": "function_call_output", "output": ""}}, MISSING, None),
    ("output", {"item": {**RESULT, "output": {}}}, "invalid_type", "item.output"),
]


@pytest.mark.parametrize(
    ("fields", "code", "param"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_an_invalid_item_is_refused_by_name(fields: Json, code: str, param: str | None) -> None:
    client = Client()
    event = {"type": "conversation.item.create", "event_id": "c1", **fields}
    [error] = converse(client, event)
    told = error["error"]
    assert (told["code"], told["event_id"]) == (code, "c1")
    assert param in (None, told["param"])
    assert len(json.dumps(error)) < 1500, "an error must not echo what a client sent at length"
    assert client.session.asked == []


def test_an_error_lists_the_allowed_types_of_content() -> None:
    client = Client()
    [error] = converse(client, create(message("assistant", IMAGE)))
    assert "Allowed: output_text, output_audio." in error["error"]["message"]


@pytest.mark.parametrize("sent", [LIST, {**LIST, "tools": []}, WANTED], ids=["list", "none", "ask"])
def test_items_of_mcp_servers_can_be_sent_back_unchanged(sent: Json) -> None:
    """A client that restores a conversation sends the items that it got, those of the server
    included."""
    made = converse_item(sent)
    told = item_json(made)
    assert {name: told[name] for name in sent if name != "tools"} == {
        name: value for name, value in sent.items() if name != "tools"
    }
    assert converse_item(told) == made


def converse_item(sent: Json) -> Any:
    client = Client()
    assert converse(client, create(sent)) == []
    [(_, item, _)] = client.session.asked
    return item
