"""The input from a Home Assistant: frames, answers, the registries, states of entities."""

import json
from typing import Any, cast

import msgspec

from core.errors import ConfigError, RemoteProtocolError
from devices.home_assistant.conversation import MAX_SPEECH_CHARS, parse_result
from devices.home_assistant.entities import EntityMirror
from devices.home_assistant.protocol import (
    CommandResult,
    SubscriptionEvent,
    decode,
    decode_greeting,
)
from devices.home_assistant.registries import (
    MAX_ENTITIES,
    HomeAssistantHouse,
    RegistrySnapshot,
    build_house,
    candidate_ids,
)
from devices.home_assistant.services import MAX_TARGETS, SERVICES, service_calls
from devices.home_assistant.websocket import HomeAssistantWebSocket
from pipeline.tools.home.config import HomeConfig
from pipeline.tools.home.home import Home
from tests.devices.home_assistant.fake_server import answered
from tests.fuzz.shared_loop import run_kept
from tests.fuzz.target import Target, lines

FRAMES: tuple[Any, ...] = (
    {"type": "auth_required", "ha_version": "2026.11.0"},
    {"type": "auth_invalid", "message": "no"},
    [{"id": 1, "type": "result", "success": True, "result": []}, {"id": 2, "type": "pong"}],
    {"id": 3, "type": "result", "success": False, "error": {"code": "c", "message": "m"}},
    {"id": 4, "type": "event", "event": {"a": {"light.a": {"s": "on", "a": {"brightness": 3}}}}},
)
ANSWERS: tuple[Any, ...] = (
    answered("Done"),
    answered("", code="no_intent_match"),
    {
        "response": {
            "response_type": "query_answer",
            "speech": {"ssml": {"speech": "<speak>It is <b>on</b></speak>"}},
            "data": {"success": [{"type": "entity", "name": "Lamp", "id": "light.a"}]},
        }
    },
)
HOUSE: dict[str, Any] = {
    "states": [
        {"entity_id": "light.a", "attributes": {"friendly_name": "Lamp"}},
        {"entity_id": "cover.b", "attributes": {"friendly_name": "B", "device_class": "blind"}},
    ],
    "entries": {
        "light.a": {"area_id": "kitchen", "aliases": ["moon"]},
        "cover.b": {"device_id": "d", "options": {"conversation": {"should_expose": True}}},
    },
    "devices": [{"id": "d", "area_id": "kitchen"}],
    "areas": [{"area_id": "kitchen", "name": "Kitchen", "aliases": ["galley"]}],
    "floors": [{"name": "Ground"}],
    "exposed": {"exposed_entities": {"light.a": {"conversation": True}}},
}
CHANGE: dict[str, Any] = {
    "a": {"light.a": {"s": "on", "a": {"brightness": 128}}, "climate.c": {"s": "heat"}},
    "c": {"cover.b": {"+": {"s": "opening", "a": {"current_position": 30}}}},
}
SLOTS = {"name": "Lamp", "area": "kitchen", "brightness": 30, "position": 4, "temperature": 20}


def frames(data: bytes) -> None:
    """Checks that a frame gives messages or an error that ends the connection."""
    text = data.decode(errors="replace")
    try:
        for message in decode(text):
            if isinstance(message, CommandResult) and message.error is not None:
                str(message.error).encode()
        kind, said = decode_greeting(text)
        assert isinstance(kind, str)
        assert isinstance(said, str)
    except RemoteProtocolError as error:
        assert len(str(error)) < 300


def answers(data: bytes) -> None:
    """Checks that an answer gives words within their bounds, or an error."""
    try:
        found = parse_result(json.loads(data))
    except (ValueError, RecursionError, RemoteProtocolError):
        return
    assert len(found.speech) <= MAX_SPEECH_CHARS
    assert len(found.succeeded) <= MAX_TARGETS


class _Link:
    """A connection that accepts every subscription."""

    async def subscribe(self, kind: str, **fields: Any) -> int:
        return 1


def houses(data: bytes) -> None:
    """Checks that any registries give a house, which can be drawn or is refused, and that commands
    address only its entities. The input has a line of registries, one of an event, one of slots."""
    told, change, slots = (_table(line) for line in (data + b"\n\n").split(b"\n")[:3])
    registries = {name: told.get(name) for name in HOUSE}
    candidate_ids(registries["states"], registries["exposed"])
    found = build_house(RegistrySnapshot(**registries))
    assert len(found.entities) <= MAX_ENTITIES
    assert len(found.keywords(100)) <= 100
    for intent in SERVICES:
        calls = service_calls(found, intent, slots)
        assert sum(len(call.data["entity_id"]) for call in calls) <= MAX_TARGETS
    run_kept(_mirrored(found, change))


async def _mirrored(found: HomeAssistantHouse, change: dict[str, Any]) -> None:
    home = Home(HomeConfig())
    mirror = EntityMirror(home)
    try:
        await mirror.show(found, cast(HomeAssistantWebSocket, _Link()))
    except ConfigError:
        return
    mirror.take(SubscriptionEvent(1, change))
    msgspec.json.encode(home.snapshot("en"))


def _table(line: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


TARGETS = (
    Target(name="home_frames", one_input=frames, seeds=lines(FRAMES), is_json=True),
    Target(name="home_answers", one_input=answers, seeds=lines(ANSWERS), is_json=True),
    Target(
        name="home_houses",
        one_input=houses,
        seeds=(b"\n".join(lines((HOUSE, CHANGE, SLOTS))),),
        is_json=True,
    ),
)
