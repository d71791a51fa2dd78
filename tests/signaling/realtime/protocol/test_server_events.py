"""Every server event, in order and in exactly the shape that clients validate."""

import re
from base64 import b64decode
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from openai.types.realtime import RealtimeServerEvent
from pydantic import BaseModel, TypeAdapter

from core.conversation.events import (
    FormatName,
    FunctionCallArgumentsDelta,
    HypothesisChanged,
    OutputAudioDelta,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    PlayoutCleared,
    PlayoutStarted,
    PlayoutStopped,
    ResponseCreated,
    ResponseDone,
    ResponseParameters,
    ServerToolItem,
    SessionEvent,
    SpeakerRecognised,
    SpeechDiscarded,
    SpeechStarted,
    TranscriptionCompleted,
    WakeStateChanged,
)
from core.conversation.items import FunctionCallItem, FunctionOutputItem
from core.conversation.speakers import SpeakerMatch
from core.conversation.usage import TokenUsage
from media.codecs import g711
from pipeline.shared.settings import SessionSettings
from signaling.realtime.protocol.audio_format import MAX_DELTA_SAMPLES
from signaling.realtime.protocol.translator import EventTranslator, Transport
from signaling.realtime.session.settings import SessionConfiguration
from tests.shared import ROOT
from tests.signaling.realtime.server_events import CALL, EVERY, NOISE, SPOKEN, STARTED, TRACE, TYPED

SERVER_EVENT: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
SHOWN_EXTRAS = {"id", "object"}
"Session fields that OpenAI's service sends but its package does not type."


def translator(
    *include: str, transport: Transport = "webrtc", settings: SessionSettings | None = None
) -> EventTranslator:
    terms = SessionConfiguration(settings or SessionSettings(), frozenset(include))
    return EventTranslator(terms, "sess_1", "conv_1", transport=transport)


def types_of(translated: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in translated]


def unknown_fields(model: BaseModel, at: str = "") -> set[str]:
    """Returns the names, at any depth, that the types of the package lack."""
    found = {f"{at}{name}" for name in model.model_extra or {}}
    for name in type(model).model_fields:
        value = getattr(model, name)
        for below in value if isinstance(value, list) else [value]:
            if isinstance(below, BaseModel):
                found |= unknown_fields(below, f"{at}{name}.")
    return found


@pytest.mark.parametrize("transport", ["webrtc", "websocket"])
def test_every_event_is_known_to_clients(transport: Transport) -> None:
    speaker = translator(transport=transport)
    sent = [*speaker.created(), speaker.updated(), speaker.error("x", "y", param="z", event_id="c")]
    for happened in EVERY:
        sent += speaker.to_json(happened)
    for event in sent:
        known = SERVER_EVENT.validate_python(event, strict=True)
        assert known.type == event["type"]
        allowed = {f"session.{name}" for name in SHOWN_EXTRAS}
        assert unknown_fields(known) <= allowed, event
    ids = [event["event_id"] for event in sent]
    assert len(set(ids)) == len(ids)


def test_the_documented_list_of_events_never_sent_is_complete() -> None:
    """The list contains events known to clients; events of MCP servers have their own tests."""
    known = {
        kind
        for event in get_args(get_args(RealtimeServerEvent)[0])
        for kind in get_args(event.model_fields["type"].annotation)
        if "mcp" not in kind
    }
    sent = {"error"}
    for transport in get_args(Transport):
        translator = EventTranslator(
            SessionConfiguration(), "sess_1", "conv_1", transport=transport
        )
        begun = (*translator.created(), translator.updated())
        told = (out for happened in EVERY for out in translator.to_json(happened))
        sent |= {out["type"] for out in (*begun, *told)}
    page = (ROOT / "docs" / "realtime.md").read_text(encoding="utf-8")
    listed = page.split("### Events that are never sent", 1)[1].split("\n#", 1)[0]
    assert set(re.findall(r"(?m)^\| `([a-z_.]+)`", listed)) == known - sent


@pytest.mark.parametrize(
    ("counted", "shown"),
    [
        (TokenUsage(), None),
        (TokenUsage(3, 0), (3, 3, 0)),
        (TokenUsage(0, 4), (4, 0, 4)),
        (TokenUsage(3, 4), (7, 3, 4)),
    ],
)
def test_unknown_usage_is_null_and_not_zero(
    counted: TokenUsage, shown: tuple[int, int, int] | None
) -> None:
    done = ResponseDone("resp_1", "completed", "text", (TYPED,), usage=counted)
    [sent] = translator().to_json(done)
    usage = SERVER_EVENT.validate_python(sent, strict=True).response.usage
    if shown is None:
        assert usage is None
    else:
        assert (usage.total_tokens, usage.input_tokens, usage.output_tokens) == shown


def test_the_order_of_events_of_a_spoken_response() -> None:
    speaker = translator(transport="websocket")
    story: list[SessionEvent] = [
        ResponseCreated("resp_1", "audio"),
        OutputItemAdded("resp_1", 0, STARTED, "item_u"),
        OutputTextDelta("resp_1", "item_a", 0, "audio", "It is on."),
        OutputAudioDelta("resp_1", "item_a", 0, NOISE[:480]),
        OutputItemDone("resp_1", 0, SPOKEN, "item_u", has_audio=True),
        ResponseDone("resp_1", "completed", "audio", (SPOKEN,)),
    ]
    sent = [event for happened in story for event in speaker.to_json(happened)]
    assert types_of(sent) == [
        "response.created",
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
        "response.output_audio_transcript.delta",
        "response.output_audio.delta",
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.content_part.done",
        "response.output_item.done",
        "conversation.item.done",
        "response.done",
    ]
    assert sent[3]["part"] == {"type": "audio", "transcript": ""}
    assert sent[7]["transcript"] == sent[8]["part"]["transcript"] == "It is on."
    assert sent[-1]["response"]["output"][0]["content"] == [
        {"type": "output_audio", "transcript": "It is on."}
    ]


def test_the_order_of_events_of_a_written_response_and_a_tool_call() -> None:
    speaker = translator()
    speaker.to_json(ResponseCreated("resp_1", "text"))
    done = speaker.to_json(OutputItemDone("resp_1", 0, TYPED, None, has_audio=False))
    assert types_of(done)[:2] == ["response.output_text.done", "response.content_part.done"]
    called = speaker.to_json(
        FunctionCallArgumentsDelta("resp_1", "item_f", 1, "call_1", CALL.arguments)
    )
    called += speaker.to_json(OutputItemDone("resp_1", 1, CALL, None, has_audio=False))
    assert types_of(called) == [
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "conversation.item.done",
    ]
    assert called[1]["name"] == "set_light"


def test_an_out_of_band_response_adds_no_items_to_the_conversation() -> None:
    speaker = translator()
    terms = ResponseParameters(in_conversation=False, metadata={"a": "b"}, max_output_tokens=7)
    [created] = speaker.to_json(ResponseCreated("resp_1", "text", terms))
    assert created["response"]["conversation_id"] is None
    assert created["response"]["metadata"] == {"a": "b"}
    assert created["response"]["max_output_tokens"] == 7
    done = speaker.to_json(OutputItemDone("resp_1", 0, TYPED, None, has_audio=False))
    assert types_of(done)[-1] == "response.output_item.done"
    speaker.to_json(ResponseCreated("resp_2", "text"))
    done = speaker.to_json(OutputItemDone("resp_2", 0, TYPED, None, has_audio=False))
    assert types_of(done)[-1] == "conversation.item.done"


def test_a_websocket_client_gets_audio_in_small_pieces() -> None:
    pcm = np.arange(2 * MAX_DELTA_SAMPLES + 7, dtype=np.int16)
    sent = translator(transport="websocket").to_json(OutputAudioDelta("resp_1", "item_a", 0, pcm))
    assert len(sent) == 3
    assert max(len(event["delta"]) for event in sent) == 32_000
    data = b"".join(b64decode(event["delta"]) for event in sent)
    assert np.array_equal(np.frombuffer(data, "<i2"), pcm)


@pytest.mark.parametrize(("name", "law"), [("audio/pcmu", "mu"), ("audio/pcma", "a")])
def test_telephone_audio_is_complete_for_each_item(name: FormatName, law: g711.G711Law) -> None:
    speaker = translator(transport="websocket")
    speaker.configuration = replace(speaker.configuration, output_format=name)
    speaker.to_json(ResponseCreated("resp_1", "audio"))
    tone = (3000 * np.sin(np.arange(24_000) / 30)).astype(np.int16)
    for item in (SPOKEN, replace(SPOKEN, id="item_b")):
        sent = []
        for at in range(0, len(tone), 480):
            piece = OutputAudioDelta("resp_1", item.id, 0, tone[at : at + 480])
            sent += speaker.to_json(piece)
        done = speaker.to_json(OutputItemDone("resp_1", 0, item, None, has_audio=True))
        assert types_of(done)[:2] == ["response.output_audio.delta", "response.output_audio.done"]
        data = b"".join(b64decode(event["delta"]) for event in [*sent, done[0]])
        assert len(data) == 8000  # a second, whatever the resampler held back
        level = np.abs(g711.decode(data, law)[800:7200].astype(int)).max()
        assert level == pytest.approx(3000, rel=0.1)


@pytest.mark.parametrize(
    ("happened", "transport"),
    [
        (OutputAudioDelta("resp_1", "item_a", 0, NOISE), "webrtc"),
        (PlayoutStarted("resp_1"), "websocket"),
        (PlayoutStopped("resp_1"), "websocket"),
        (PlayoutCleared("resp_1"), "websocket"),
    ],
)
def test_events_of_the_other_transport_are_not_sent(
    happened: SessionEvent, transport: Transport
) -> None:
    assert translator(transport=transport).to_json(happened) == []


def test_the_servers_tools_are_shown_only_on_request_and_cut_to_a_readable_length() -> None:
    call = ServerToolItem("resp_r", FunctionCallItem("item_t", "call_t", "HassTurnOn", "{}"))
    result = ServerToolItem("resp_r", FunctionOutputItem("item_o", "call_t", "x" * 5_000))
    assert translator("earshot.turn").to_json(call) == []
    asking = translator("earshot.tool")
    (called,), (gave,) = asking.to_json(call), asking.to_json(result)
    assert (called["type"], called["response_id"]) == ("earshot.tool", "resp_r")
    assert (called["item"]["name"], called["item"]["arguments"]) == ("HassTurnOn", "{}")
    assert gave["item"]["call_id"] == "call_t"
    assert gave["item"]["output"] == "x" * 4_000 + "\N{HORIZONTAL ELLIPSIS}"


def test_earshot_events_are_sent_only_if_included() -> None:
    words = HypothesisChanged("item_u", "turn on", "the", 640)
    assert translator().to_json(words) == translator().to_json(TRACE) == []
    woken = WakeStateChanged("okay_nabu", "Okay Nabu", is_awake=True)
    assert translator().to_json(woken) == []
    assert translator("earshot.wake").to_json(woken)[0]["wake"] == {
        "word": "okay_nabu",
        "phrase": "Okay Nabu",
        "is_awake": True,
    }
    asking = translator("earshot.hypothesis", "earshot.turn")
    assert asking.to_json(words) == [
        {
            "type": "earshot.hypothesis",
            "event_id": "evt_1",
            "item_id": "item_u",
            "stable": "turn on",
            "unstable": "the",
            "audio_ms": 640,
        }
    ]
    assert asking.to_json(TRACE)[0]["turn"] == {
        "id": "turn_1",
        "item_id": "item_u",
        "response_id": "resp_1",
        "status": "answered",
        "response_latency_ms": 512.3,
        "stages": [{"stage": "asr", "start_ms": 0, "end_ms": 31.5, "is_speculative": True}],
        "marks": {"asr_final": 31.5},
        "speaker": None,
        "cut": {"words": 3, "by": "word_times"},
    }
    whole = replace(TRACE, cut=None)
    assert asking.to_json(whole)[0]["turn"]["cut"] is None


def test_the_speaker_is_named_to_clients_that_ask_for_turns() -> None:
    anna = SpeakerMatch("spk_1", "Anna", 0.87)
    recognised, guest = SpeakerRecognised("item_u", anna), SpeakerRecognised("item_u", None)
    assert translator().to_json(recognised) == []
    asking, shown = translator("earshot.turn"), {"id": "spk_1", "name": "Anna", "score": 0.87}
    (said,) = asking.to_json(recognised)
    assert (said["type"], said["item_id"]) == ("conversation.item.speaker", "item_u")
    assert said["speaker"] == shown
    assert asking.to_json(guest)[0]["speaker"] is None
    assert asking.to_json(replace(TRACE, speaker=anna))[0]["turn"]["speaker"] == shown


def test_a_client_without_transcription_gets_no_transcripts() -> None:
    deaf = translator("earshot.hypothesis", settings=SessionSettings(transcribes=False))
    assert deaf.to_json(TranscriptionCompleted("item_u", "secret", 1, "en")) == []
    assert deaf.to_json(HypothesisChanged("item_u", "secret", "", 10)) == []


def test_logprobs_come_with_the_completed_transcript() -> None:
    heard = TranscriptionCompleted("item_u", "on", 0.4, "en", ((b" on", -0.25), (b"\xc3", -1.5)))
    delta, completed = translator().to_json(heard)
    assert "logprobs" not in delta
    assert completed["logprobs"] == [
        {"token": " on", "bytes": [32, 111, 110], "logprob": -0.25},
        {"token": "\ufffd", "bytes": [195], "logprob": -1.5},
    ]
    _, without = translator().to_json(TranscriptionCompleted("item_u", "on", 0.4, "en"))
    assert "logprobs" not in without


def test_discarded_speech_ends_where_it_began() -> None:
    speaker = translator()
    speaker.to_json(SpeechStarted("item_u", 120))
    [ended] = speaker.to_json(SpeechDiscarded("item_u"))
    assert (ended["type"], ended["audio_end_ms"]) == ("input_audio_buffer.speech_stopped", 120)
