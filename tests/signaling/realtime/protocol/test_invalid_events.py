"""Every client event with a field missing, extra, of the wrong type or too long, and events out of
order."""

import json
from typing import Any, get_args

import pytest
from openai.types.realtime import RealtimeClientEvent

from core.errors import EarshotError
from signaling.realtime.protocol.decode import DECODER, BadEvent, decode
from tests.signaling.realtime.fakes import Client, converse

Json = dict[str, Any]

MESSAGE = {"type": "message", "role": "user", "content": []}
GOOD: dict[str, Json] = {
    "session.update": {"session": {"type": "realtime"}},
    "input_audio_buffer.append": {"audio": "AAAA"},
    "input_audio_buffer.commit": {},
    "input_audio_buffer.clear": {},
    "output_audio_buffer.clear": {},
    "conversation.item.create": {"item": MESSAGE, "previous_item_id": "root"},
    "conversation.item.delete": {"item_id": "a"},
    "conversation.item.retrieve": {"item_id": "a"},
    "conversation.item.truncate": {"item_id": "a", "content_index": 0, "audio_end_ms": 0},
    "response.create": {"response": {}},
    "response.cancel": {"response_id": "r"},
}
OPTIONAL = {"previous_item_id", "response", "response_id"}
FIELDS = [(kind, field) for kind, fields in GOOD.items() for field in fields]


def refusal(kind: str, fields: Json) -> BadEvent:
    with pytest.raises(BadEvent) as caught:
        decode(json.dumps({"type": kind, "event_id": "c1", **fields}))
    assert caught.value.event_id == "c1"
    assert len(str(caught.value)) < 1000, "an error must not echo what a client sent at length"
    return caught.value


def test_the_table_contains_every_event() -> None:
    """Exactly the events for which OpenAI's package has a type."""
    known = {
        kind
        for event in get_args(get_args(RealtimeClientEvent)[0])
        for kind in get_args(event.model_fields["type"].annotation)
    }
    assert GOOD.keys() == DECODER.kinds.keys() == known


@pytest.mark.parametrize("kind", GOOD)
def test_a_valid_event_is_accepted_and_an_unknown_field_refused(kind: str) -> None:
    assert isinstance(decode(json.dumps({"type": kind, **GOOD[kind]})), DECODER.kinds[kind])
    for odd in ("extra", "x" * 10_000, "a\u2028b", ""):
        refused = refusal(kind, {**GOOD[kind], odd: 1})
        assert (refused.code, refused.param) == ("unknown_parameter", odd[:64])
    with pytest.raises(BadEvent) as caught:
        decode(json.dumps({"type": kind, **GOOD[kind], "event_id": 7}))
    assert (caught.value.code, caught.value.param) == ("invalid_type", "event_id")


@pytest.mark.parametrize(("kind", "field"), FIELDS)
def test_a_missing_field_is_named(kind: str, field: str) -> None:
    fields = {name: value for name, value in GOOD[kind].items() if name != field}
    if field in OPTIONAL:
        decode(json.dumps({"type": kind, **fields}))
        decode(json.dumps({"type": kind, **fields, field: None}))
        return
    refused = refusal(kind, fields)
    assert (refused.code, refused.param) == ("missing_required_parameter", field)
    assert refusal(kind, {**fields, field: None}).code == "invalid_type"


@pytest.mark.parametrize(("kind", "field"), FIELDS)
@pytest.mark.parametrize("wrong", [True, [], 1.5, [[[]]]], ids=repr)
def test_a_field_of_the_wrong_type_is_named(kind: str, field: str, wrong: Any) -> None:
    refused = refusal(kind, {**GOOD[kind], field: wrong})
    assert (refused.code, refused.param) == ("invalid_type", field)


@pytest.mark.parametrize(("kind", "field"), FIELDS)
def test_a_field_that_is_too_long_is_refused(kind: str, field: str) -> None:
    refused = refusal(kind, {**GOOD[kind], field: "x" * 300_000}) if field != "audio" else None
    assert refused is None or refused.code == "event_too_large"
    if field.endswith("_id"):
        refused = refusal(kind, {**GOOD[kind], field: "x" * 65})
        assert (refused.code, refused.param) == ("invalid_value", field)


@pytest.mark.parametrize("kind", GOOD)
def test_an_error_of_the_session_names_the_event(kind: str) -> None:
    """If an event is out of order or names something missing, the session refuses it and goes
    on."""
    client = Client()
    client.session.refuses = EarshotError("not now")
    sent = {"type": kind, **GOOD[kind], "event_id": "c1"}
    told = converse(client, sent, {"type": "response.create"})
    errors = [event["error"]["event_id"] for event in told if event["type"] == "error"]
    if kind in ("input_audio_buffer.append", "output_audio_buffer.clear"):
        assert errors == [
            "c1",
            None,
        ]  # refused without the session
    else:
        assert errors == ["c1"]
        assert client.session.asked[-1][0] == "create_response"
