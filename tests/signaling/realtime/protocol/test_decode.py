"""Events that clients send: valid ones become values, invalid ones errors that name the mistake."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from signaling.realtime.protocol.client_events import (
    MAX_EVENT_ID_LENGTH,
    ClientEvent,
    InputAppend,
    InputCommit,
    ItemCreate,
    ItemTruncate,
    NewMessage,
    ResponseCreate,
    SessionUpdate,
)
from signaling.realtime.protocol.decode import (
    MAX_CONTROL_EVENT_BYTES,
    MAX_EVENT_BYTES,
    BadEvent,
    decode,
)
from signaling.realtime.session.schema import RealtimeSession

MEGABYTE = "x" * 1_000_000


def update(**session: Any) -> str:
    return json.dumps({"type": "session.update", "event_id": "c1", "session": session})


def event(kind: str, **fields: Any) -> str:
    return json.dumps({"type": kind, **fields})


def heard(**audio_input: Any) -> str:
    return update(type="realtime", audio={"input": audio_input})


BAD = [
    ("no JSON", "hello", "invalid_json", None),
    ("half JSON", '{"type":"response.cancel"', "invalid_json", None),
    ("nested too deeply", "[" * 100_000, "invalid_json", None),
    ("lone surrogate", '{"type":"\ud800"}', "invalid_json", None),
    ("odd name", event("response.cancel", **{"a\nb": 1}), "unknown_parameter", "a\nb"),
    (
        "name like our library's words",
        event("response.cancel", **{" - at `$.x`": 1}),
        "unknown_parameter",
        " - at `$.x`",
    ),
    ("no object", "[1,2]", "invalid_json", None),
    ("no type", "{}", "missing_required_parameter", "type"),
    ("type is no text", '{"type":7}', "invalid_type", "type"),
    ("unknown type", '{"type":"session.updat"}', "unknown_event_type", "type"),
    ("beta type", '{"type":"transcription_session.update"}', "unknown_event_type", "type"),
    (
        "field missing",
        '{"type":"input_audio_buffer.append"}',
        "missing_required_parameter",
        "audio",
    ),
    (
        "field of wrong type",
        '{"type":"input_audio_buffer.append","audio":5}',
        "invalid_type",
        "audio",
    ),
    ("unknown field", '{"type":"response.cancel","id":"r"}', "unknown_parameter", "id"),
    ("typo", update(type="realtime", voise="x"), "unknown_parameter", "session.voise"),
    ("no session type", update(instructions="x"), "missing_required_parameter", "session.type"),
    ("wrong session type", update(type="beta"), "invalid_value", "session.type"),
    (
        "text for a number",
        update(type="realtime", audio={"output": {"speed": "1"}}),
        "invalid_type",
        "session.audio.output.speed",
    ),
    (
        "too fast",
        update(type="realtime", audio={"output": {"speed": 1.6}}),
        "invalid_value",
        "session.audio.output.speed",
    ),
    (
        "both modalities",
        update(type="realtime", output_modalities=["text", "audio"]),
        "invalid_value",
        "session.output_modalities",
    ),
    (
        "unknown modality",
        update(type="realtime", output_modalities=["video"]),
        "invalid_value",
        "session.output_modalities[0]",
    ),
    (
        "wrong rate",
        heard(format={"type": "audio/pcm", "rate": 8000}),
        "invalid_value",
        "session.audio.input.format.rate",
    ),
    (
        "unknown format",
        heard(format={"type": "audio/opus"}),
        "invalid_value",
        "session.audio.input.format.type",
    ),
    (
        "unknown detection",
        heard(turn_detection={"type": "magic"}),
        "invalid_value",
        "session.audio.input.turn_detection.type",
    ),
    (
        "other kind's field",
        heard(turn_detection={"type": "server_vad", "eagerness": "low"}),
        "unknown_parameter",
        "session.audio.input.turn_detection.eagerness",
    ),
    (
        "threshold",
        heard(turn_detection={"type": "server_vad", "threshold": 1.1}),
        "invalid_value",
        "session.audio.input.turn_detection.threshold",
    ),
    (
        "unknown include",
        update(type="realtime", include=["earshot.turns"]),
        "invalid_value",
        "session.include[0]",
    ),
    (
        "answers in a transcription",
        update(type="transcription", instructions="x"),
        "unknown_parameter",
        "session.instructions",
    ),
    (
        "role",
        event("conversation.item.create", item={"type": "message", "role": "tool", "content": []}),
        "invalid_value",
        "item.role",
    ),
    (
        "negative time",
        event("conversation.item.truncate", item_id="a", content_index=0, audio_end_ms=-1),
        "invalid_value",
        "audio_end_ms",
    ),
    ("1 MB of type", json.dumps({"type": MEGABYTE}), "unknown_event_type", "type"),
    (
        "1 MB of instructions",
        update(type="realtime", instructions=MEGABYTE),
        "event_too_large",
        None,
    ),
    (
        "1 MB of unknown field",
        json.dumps({"type": "response.cancel", MEGABYTE: 1}),
        "event_too_large",
        None,
    ),
    (
        "over every limit",
        event("input_audio_buffer.append", audio="A" * MAX_EVENT_BYTES),
        "event_too_large",
        None,
    ),
]


@pytest.mark.parametrize(
    ("text", "code", "param"), [row[1:] for row in BAD], ids=[row[0] for row in BAD]
)
def test_an_invalid_event_names_its_mistake(text: str, code: str, param: str | None) -> None:
    with pytest.raises(BadEvent) as caught:
        decode(text)
    assert (caught.value.code, caught.value.param) == (code, param)
    assert len(str(caught.value)) < 1000, "an error must not echo what a client sent at length"


def test_an_error_lists_the_allowed_values() -> None:
    with pytest.raises(BadEvent, match=r"Allowed: semantic_vad, server_vad\.") as caught:
        decode(heard(turn_detection={"type": "magic"}))
    assert caught.value.event_id == "c1"
    with pytest.raises(BadEvent, match=r"Allowed: 16000, 24000\."):
        decode(heard(format={"type": "audio/pcm", "rate": 8000}))
    with pytest.raises(BadEvent, match=r"Allowed: .*\bresponse\.create\b"):
        decode('{"type":"respond"}')
    with pytest.raises(BadEvent, match=r"'session\.voise'\. Allowed: .*\binstructions\b"):
        decode(update(type="realtime", voise=1))


def test_an_event_id_is_limited_and_a_longer_one_is_not_repeated() -> None:
    assert decode(event("response.cancel", event_id="x" * MAX_EVENT_ID_LENGTH)).event_id
    for kind in ("response.cancel", "nonsense"):
        with pytest.raises(BadEvent) as caught:
            decode(event(kind, event_id="x" * (MAX_EVENT_ID_LENGTH + 1)))
        assert caught.value.event_id is None
    with pytest.raises(BadEvent, match=r"'event_id'. .*512") as caught:
        decode(event("response.cancel", event_id="x" * (MAX_EVENT_ID_LENGTH + 1)))
    assert (caught.value.code, caught.value.param) == ("invalid_value", "event_id")


WRITTEN = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}

GOOD: list[tuple[str, type[ClientEvent]]] = [
    ('{"type":"input_audio_buffer.commit"}', InputCommit),
    ('{"type":"input_audio_buffer.append","audio":"AAAA","event_id":null}', InputAppend),
    ('{"type":"response.create"}', ResponseCreate),
    (event("response.create", response={"max_output_tokens": "inf"}), ResponseCreate),
    (
        event("conversation.item.truncate", item_id="a", content_index=0, audio_end_ms=9),
        ItemTruncate,
    ),
    (event("conversation.item.create", previous_item_id="root", item=WRITTEN), ItemCreate),
]


@pytest.mark.parametrize(("text", "kind"), GOOD)
def test_a_valid_event_becomes_its_value(text: str, kind: type[ClientEvent]) -> None:
    assert type(decode(text)) is kind


def test_an_update_contains_only_the_fields_that_were_sent() -> None:
    decoded = decode(update(type="realtime", instructions=None))
    assert isinstance(decoded, SessionUpdate)
    assert isinstance(decoded.session, RealtimeSession)
    assert decoded.event_id == "c1"
    assert decoded.session.instructions is None
    assert decoded.session.audio is UNSET


def test_a_long_append_does_not_count_as_a_long_event() -> None:
    audio = "A" * (2 * MAX_CONTROL_EVENT_BYTES)
    decoded = decode(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
    assert isinstance(decoded, InputAppend)
    assert decoded.audio == audio


@pytest.mark.parametrize("kind", ["session.update", "input_audio_buffer.append"])
def test_a_large_event_without_audio_is_refused_unread(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its millions of objects would block the event loop of all calls and take 600 MB."""
    text = f'{{"type":"{kind}","x":[{"{}," * MAX_CONTROL_EVENT_BYTES}{{}}]}}'
    monkeypatch.setattr(msgspec.json, "decode", None)
    with pytest.raises(BadEvent) as caught:
        decode(text)
    assert caught.value.code == "event_too_large"


def test_items_keep_their_form() -> None:
    decoded = decode(GOOD[-1][0])
    assert isinstance(decoded, ItemCreate)
    assert isinstance(decoded.item, NewMessage)
    assert decoded.previous_item_id == "root"


@pytest.mark.parametrize(
    "text",
    [
        '{"type":"input_audio_buffer.append","audio":"AA","audio":"AAAA"}',
        '{"type":"input_audio_buffer.append","audio":1,"event_id":"e"}',
        '{"type":"input_audio_buffer.append","audio":"A","more":1,"event_id":"e"}',
        '{"type":"input_audio_buffer.append","audio":"\\ud800"}',
        '{"type":"input_audio_buffer.append","audio":"\ud800"}',
        '{"type":"input_audio_buffer.append","type":"input_audio_buffer.commit","audio":"A"}',
        '{"audio":"AAAA","type":"input_audio_buffer.append","event_id":null}',
        '{"type":"conversation.item.truncate","item_id":"a","content_index":0.0,"audio_end_ms":1e2}',
        '{"type":"response.create","response":{"max_output_tokens":5.0,"metadata":{"a":"b"}}}',
        '{"type":"conversation.item.create","item":{"type":"message","role":"user","content":[{}]}}',
        '{"type":5,"event_id":"e"}',
        "[[" * 5000,
    ],
)
def test_events_are_read_the_same_with_and_without_reshaping(text: str) -> None:
    def read(reshape: Callable[[dict[str, Any]], dict[str, Any]] | None) -> object:
        try:
            return decode(text, reshape)
        except BadEvent as error:
            return str(error), error.code, error.param, error.event_id

    assert read(None) == read(lambda raw: raw)
