"""Clients of the beta API: their events are understood, and they get no events unknown to them."""

import json
from typing import Any

import pytest
from openai.types.beta.realtime import RealtimeServerEvent as BetaServerEvent
from pydantic import TypeAdapter

from core.conversation.events import (
    ItemAdded,
    ItemDone,
    OutputTextDelta,
    ResponseCreated,
    ResponseDone,
)
from core.conversation.items import MessageItem, TextPart
from core.errors import RequestError
from pipeline.shared.settings import ResponseRequest, SessionSettings
from signaling.realtime.protocol.beta import is_beta, secret_request_to_ga, session_to_beta, to_ga
from signaling.realtime.protocol.translator import EventTranslator
from signaling.realtime.session.settings import SessionConfiguration, session_json
from tests.signaling.realtime.client_events import after
from tests.signaling.realtime.fakes import Client, converse
from tests.signaling.realtime.server_events import EVERY

KNOWN: TypeAdapter[Any] = TypeAdapter(BetaServerEvent)
BETA = SessionConfiguration(is_beta=True)
FLAT = {
    "modalities": ["text", "audio"],
    "instructions": "Be brief.",
    "voice": "anna",
    "speed": 1.25,
    "input_audio_format": "g711_ulaw",
    "output_audio_format": "g711_alaw",
    "input_audio_transcription": {"model": "whisper-1", "language": "de"},
    "input_audio_noise_reduction": {"type": "near_field"},
    "turn_detection": {"type": "server_vad", "silence_duration_ms": 300},
    "max_response_output_tokens": 100,
    "temperature": 0.8,
    "tools": [{"type": "function", "name": "f"}],
    "tool_choice": "required",
}


def test_a_beta_session_is_converted_in_both_directions() -> None:
    event = to_ga({"type": "session.update", "session": FLAT})
    terms = after(event["session"])
    settings = terms.settings
    assert (settings.modality, settings.voice, settings.speed) == ("audio", "anna", 1.25)
    assert (terms.input_format, terms.output_format) == ("audio/pcmu", "audio/pcma")
    assert (settings.language, settings.answer_temperature) == ("de", 0.8)
    assert (settings.max_output_tokens, settings.tool_choice) == (100, "required")
    flat = session_to_beta(session_json(terms, "sess_1"))
    shown = {name: flat[name] for name in FLAT if name not in ("tools", "modalities")}
    assert shown["turn_detection"]["silence_duration_ms"] == 300
    assert shown["input_audio_transcription"]["language"] == "de"
    same = ["voice", "speed", "input_audio_format", "output_audio_format", "temperature"]
    same += ["input_audio_noise_reduction"]
    assert {name: shown[name] for name in same} == {name: FLAT[name] for name in same}
    assert flat["modalities"] == ["audio", "text"]
    again = after(to_ga({"type": "session.update", "session": sendable(flat)})["session"])
    assert again.settings == settings


def sendable(flat: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in flat.items() if name not in ("id", "object")}


@pytest.mark.parametrize("transport", ["webrtc", "websocket"])
def test_every_event_is_known_to_beta_clients(transport: Any) -> None:
    speaker = EventTranslator(BETA, "sess_1", "conv_1", transport=transport)
    sent = [*speaker.created(), speaker.updated(), speaker.error("x", "y", param="z", event_id="c")]
    for happened in EVERY:
        sent += speaker.to_json(happened)
    shown = [json.loads(text) for out in sent if (text := speaker.to_text(out)) is not None]
    assert len(shown) < len(sent)
    for event in shown:
        event.get("session", {}).pop("model", None)  # their package lists theirs
        known = KNOWN.validate_python(event, strict=True)
        assert known.type == event["type"]
        if "session" in event:
            assert known.session.input_audio_format == "pcm16"
        if "response" in event:
            assert set(known.response.modalities) in ({"text"}, {"audio", "text"})


def test_items_and_responses_have_their_beta_names() -> None:
    speaker = EventTranslator(BETA, "sess_1", "conv_1", transport="websocket")
    answer = MessageItem("item_a", "assistant", (TextPart("Hi."),))

    def shown(*happened: Any) -> list[dict[str, Any]]:
        texts = [speaker.to_text(out) for event in happened for out in speaker.to_json(event)]
        return [json.loads(text) for text in texts if text is not None]

    created = shown(ItemAdded(answer, None), ItemDone(answer, None))
    assert [event["type"] for event in created] == ["conversation.item.created"]
    assert created[0]["item"]["content"] == [{"type": "text", "text": "Hi."}]
    [begun] = shown(ResponseCreated("resp_1", "text"))
    assert (begun["response"]["modalities"], begun["response"]["voice"]) == (["text"], "default")
    [delta] = shown(OutputTextDelta("resp_1", "item_a", 0, "text", "Hi."))
    assert delta["type"] == "response.text.delta"
    [done] = shown(ResponseDone("resp_1", "completed", "text", (answer,)))
    assert done["response"]["output"][0]["content"][0]["type"] == "text"


def test_a_connection_speaks_the_beta_in_both_directions() -> None:
    client = Client()
    part = {"type": "text", "text": "Hi."}
    item = {"type": "message", "id": "i", "role": "assistant", "content": [part]}
    params = {"modalities": ["audio", "text"], "voice": "anna", "max_response_output_tokens": 9}
    updated, refused = converse(
        client,
        {"type": "session.update", "session": {"instructions": "x"}},
        {"type": "conversation.item.create", "item": item},
        {"type": "response.create", "response": {**params, "temperature": 0.7}},
        {"type": "session.update", "session": {"voice": 7}, "event_id": "c"},
        terms=BETA,
    )
    assert client.sent[0]["session"]["output_audio_format"] == "pcm16"
    assert client.session.asked == [
        ("configure", SessionSettings(instructions="x")),
        ("add_item", MessageItem("i", "assistant", (TextPart("Hi."),)), None),
        (
            "create_response",
            ResponseRequest("audio", voice="anna", max_output_tokens=9, temperature=0.7),
        ),
    ]
    assert updated["session"]["instructions"] == "x"
    assert "audio" not in updated["session"]
    assert (refused["error"]["param"], refused["error"]["event_id"]) == ("session.voice", "c")


def test_a_transcription_session_is_updated_by_its_own_event() -> None:
    client = Client()
    session = {"input_audio_format": "pcm16", "turn_detection": None, "modalities": ["text"]}
    [updated] = converse(
        client, {"type": "transcription_session.update", "session": session}, terms=BETA
    )
    assert updated["type"] == "transcription_session.updated"
    assert updated["session"]["turn_detection"] is None


GARBAGE: list[Any] = [
    {"type": 7},
    {"type": []},
    {"type": {}},
    {"type": "session.update", "session": 7},
    {"type": "session.update", "session": {"audio": 7, "voice": "x"}},
    {"type": "session.update", "session": {"input_audio_format": []}},
    {"type": "session.update", "session": {"input_audio_format": "mp3"}},
    {"type": "session.update", "session": {"modalities": [{}]}},
    {"type": "response.create", "response": {"input": [7]}},
    {"type": "response.create", "response": {"modalities": ["video"]}},
    {"type": "conversation.item.create", "item": {"role": "assistant", "content": [7]}},
    {"type": "conversation.item.create", "item": {"role": "assistant", "content": [{"type": []}]}},
]


@pytest.mark.parametrize("event", GARBAGE)
@pytest.mark.parametrize("terms", [BETA, SessionConfiguration()], ids=["beta", "not known yet"])
def test_invalid_events_are_refused_as_in_the_ga_api(
    event: Any, terms: SessionConfiguration
) -> None:
    client = Client()
    [refused] = converse(client, event, terms=terms)
    assert refused["type"] == "error"
    assert client.session.asked == []


@pytest.mark.parametrize(
    ("headers", "is_old"),
    [
        ({}, False),
        ({"OpenAI-Beta": "realtime=v1"}, True),
        ({"OpenAI-Beta": "assistants=v2, realtime=v1"}, True),
        ({"OpenAI-Beta": "assistants=v2"}, False),
        ({"Sec-WebSocket-Protocol": "realtime, openai-beta.realtime-v1"}, True),
        ({"Sec-WebSocket-Protocol": "realtime"}, False),
    ],
)
def test_the_beta_is_recognised_by_its_headers(headers: dict[str, str], is_old: bool) -> None:
    assert is_beta(headers) == is_old


def test_a_request_for_a_secret_with_a_beta_session_is_converted() -> None:
    asked = secret_request_to_ga(
        {"voice": "anna", "client_secret": {"expires_after": {"seconds": 60}}},
        is_transcription=False,
    )
    assert asked == {
        "session": {"type": "realtime", "audio": {"output": {"voice": "anna"}}},
        "expires_after": {"seconds": 60},
    }
    assert secret_request_to_ga(7, is_transcription=True) == 7
    with pytest.raises(RequestError):
        after(secret_request_to_ga({"voise": 1}, is_transcription=False)["session"])


FIRST = {"voice": "anna", "turn_detection": None}


def test_a_first_update_in_the_beta_shape_switches_to_the_beta() -> None:
    client = Client()
    update = {"type": "session.update", "session": FIRST}
    [updated] = converse(client, update)
    assert updated["type"] == "session.updated"
    assert (updated["session"]["voice"], updated["session"]["modalities"]) == (
        "anna",
        ["audio", "text"],
    )
    assert "audio" not in updated["session"]


@pytest.mark.parametrize(
    "events",
    [
        ({"type": "session.update", "session": {"instructions": "x"}},),
        ({"type": "response.cancel"}, {"type": "session.update", "session": FIRST}),
    ],
)
def test_an_update_that_only_lacks_the_type_is_refused(events: tuple[dict[str, Any], ...]) -> None:
    *_, error = converse(Client(), *events)
    assert (error["error"]["code"], error["error"]["param"]) == (
        "missing_required_parameter",
        "session.type",
    )
