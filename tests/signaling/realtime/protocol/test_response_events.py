"""Responses that run at the same time, each in its own form, and their usage."""

from base64 import b64decode
from dataclasses import replace
from typing import Any

import numpy as np

from core.conversation.events import (
    FunctionCallArgumentsDelta,
    OutputAudioDelta,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    ResponseCreated,
    ResponseDone,
    ResponseParameters,
)
from core.conversation.items import AudioPart, FunctionCallItem, ImagePart, MessageItem, TextPart
from core.conversation.usage import RateLimit, RateLimits, TokenUsage
from media.codecs import g711
from pipeline.shared.settings import SessionSettings
from signaling.realtime.protocol.server_events import item_json
from signaling.realtime.protocol.translator import EventTranslator
from signaling.realtime.session.settings import SessionConfiguration

SPOKEN = MessageItem("item_a", "assistant", (AudioPart("Hi."),))
WRITTEN = MessageItem("item_b", "assistant", (TextPart("spam"),))
APART = ResponseParameters(in_conversation=False)


def translator(settings: SessionSettings | None = None) -> EventTranslator:
    terms = SessionConfiguration(settings or SessionSettings())
    return EventTranslator(terms, "sess_1", "conv_1", transport="websocket")


def types_of(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


def test_a_transcription_session_gets_no_conversation_event() -> None:
    session, conversation = translator().created()
    assert session["type"] == "session.created"
    assert conversation["conversation"] == {"id": "conv_1", "object": "realtime.conversation"}
    assert types_of(translator(SessionSettings(answers=False)).created()) == ["session.created"]


def test_a_written_response_during_a_spoken_one_keeps_its_form() -> None:
    speaker = translator()
    speaker.to_json(ResponseCreated("resp_a", "audio"))
    speaker.to_json(OutputItemAdded("resp_a", 0, replace(SPOKEN, parts=()), None))
    speaker.to_json(ResponseCreated("resp_b", "text", APART))
    begun = speaker.to_json(OutputItemAdded("resp_b", 0, replace(WRITTEN, parts=()), None))
    assert types_of(begun) == ["response.output_item.added", "response.content_part.added"]
    assert begun[1]["part"] == {"type": "text", "text": ""}
    [spoken] = speaker.to_json(OutputTextDelta("resp_a", "item_a", 0, "audio", "Hi."))
    [written] = speaker.to_json(OutputTextDelta("resp_b", "item_b", 0, "text", "spam"))
    assert spoken["type"] == "response.output_audio_transcript.delta"
    assert written["type"] == "response.output_text.delta"
    ended = speaker.to_json(OutputItemDone("resp_b", 0, WRITTEN, None, has_audio=False))
    assert types_of(ended)[0] == "response.output_text.done"
    assert "conversation.item.done" not in types_of(ended)
    speaker.to_json(ResponseDone("resp_b", "completed", "text", (WRITTEN,), parameters=APART))
    ended = speaker.to_json(OutputItemDone("resp_a", 0, SPOKEN, None, has_audio=True))
    assert "response.output_audio.done" in types_of(ended)
    assert types_of(ended)[-1] == "conversation.item.done"


def test_one_response_can_have_a_telephone_format() -> None:
    speaker = translator()
    terms = ResponseParameters(audio_format="audio/pcmu")
    [created] = speaker.to_json(ResponseCreated("resp_a", "audio", terms))
    assert created["response"]["audio"]["output"]["format"] == {"type": "audio/pcmu"}
    pcm = np.full(24_000, 3000, np.int16)
    sent = speaker.to_json(OutputAudioDelta("resp_a", "item_a", 0, pcm))
    sent += speaker.to_json(OutputItemDone("resp_a", 0, SPOKEN, None, has_audio=True))
    data = b"".join(
        b64decode(event["delta"]) for event in sent if "output_audio.delta" in event["type"]
    )
    assert len(data) == 8000
    assert abs(int(np.median(g711.decode(data, "mu"))) - 3000) < 200
    speaker.to_json(ResponseDone("resp_a", "completed", "audio", (SPOKEN,), parameters=terms))
    [created] = speaker.to_json(ResponseCreated("resp_b", "audio"))
    assert created["response"]["audio"]["output"]["format"]["type"] == "audio/pcm"


def test_a_call_that_was_cut_off_gets_no_arguments_done_event() -> None:
    speaker = translator()
    speaker.to_json(ResponseCreated("resp_a", "text"))
    call = FunctionCallItem("item_f", "call_1", "f", "", "in_progress")
    begun = speaker.to_json(OutputItemAdded("resp_a", 0, call, None))
    assert types_of(begun) == ["response.output_item.added", "conversation.item.added"]
    [delta] = speaker.to_json(FunctionCallArgumentsDelta("resp_a", "item_f", 0, "call_1", '{"a'))
    assert (delta["call_id"], delta["item_id"], delta["delta"]) == ("call_1", "item_f", '{"a')
    cut = replace(call, arguments='{"a', status="incomplete")
    ended = speaker.to_json(OutputItemDone("resp_a", 0, cut, None, has_audio=False))
    assert types_of(ended) == ["response.output_item.done", "conversation.item.done"]
    assert ended[0]["item"]["status"] == "incomplete"


def test_the_usage_of_a_response_includes_cached_tokens() -> None:
    speaker = translator()
    [done] = speaker.to_json(
        ResponseDone("resp_a", "completed", "text", usage=TokenUsage(12, 3, 8))
    )
    assert done["response"]["usage"] == {
        "total_tokens": 15,
        "input_tokens": 12,
        "output_tokens": 3,
        "input_token_details": {
            "text_tokens": 12,
            "audio_tokens": 0,
            "image_tokens": 0,
            "cached_tokens": 8,
            "cached_tokens_details": {"text_tokens": 8},
        },
        "output_token_details": {"text_tokens": 3, "audio_tokens": 0},
    }


def test_rate_limits_of_the_model_server_are_passed_on() -> None:
    limits = RateLimits((RateLimit("requests", 60, 59, 1.5), RateLimit("tokens", 9000, 8000, 0.12)))
    [event] = translator().to_json(limits)
    assert (event["type"], event["rate_limits"]) == (
        "rate_limits.updated",
        [
            {"name": "requests", "limit": 60, "remaining": 59, "reset_seconds": 1.5},
            {"name": "tokens", "limit": 9000, "remaining": 8000, "reset_seconds": 0.12},
        ],
    )


def test_an_image_is_shown_as_long_as_it_is_kept() -> None:
    kept, gone = ImagePart("data:image/png;base64,AAAA", "low"), ImagePart("")
    shown = item_json(MessageItem("i", "user", (kept, gone)))["content"]
    assert shown == [
        {"type": "input_image", "image_url": kept.url, "detail": "low"},
        {"type": "input_image", "image_url": None, "detail": "auto"},
    ]
