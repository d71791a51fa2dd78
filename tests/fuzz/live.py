"""Events that a GPT-Live client may send, and worse."""

import json
from typing import Any

from core.errors import RequestError
from signaling.live.client_events import (
    ClientEvent,
    CommentaryAppend,
    InstructionsAppend,
    LiveInputAppend,
    LiveSessionChange,
    LiveSessionStart,
    ResponseItemCreate,
    ThinkingAppend,
    decode,
)
from signaling.live.configuration import configured, session_json, updated
from signaling.live.delegations import Delegations, responses_item
from signaling.live.schema import LiveSession
from signaling.realtime.protocol.audio_input import InputAudioDecoder
from signaling.realtime.session.settings import SessionConfiguration
from tests.fuzz.target import Target, lines

TOOL = {"type": "function", "name": "lamp", "parameters": {"type": "object"}}
BACKEND = {"model": "gpt-5.5", "tools": [TOOL], "tool_choice": "auto", "max_output_tokens": 100}
SESSION: dict[str, Any] = {
    "model": "gpt-live-1",
    "instructions": "Be kind.",
    "input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
    "audio": {"format": {"type": "audio/pcm", "rate": 24000}, "output": {"voice": "marin"}},
    "delegation": {"type": "responses", "responses": BACKEND},
    "store": False,
}
APPENDS = ("instructions", "thinking", "commentary")
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "on"}
MESSAGE = {"type": "message", "role": "developer", "content": [{"text": "hi"}]}
EVENTS: tuple[Any, ...] = (
    {"type": "session.start", "event_id": "e", "session": SESSION},
    {"type": "session.start", "session": {"model": "m", "delegation": {"type": "client"}}},
    {
        "type": "session.update",
        "session": {"delegation": {"type": "responses", "responses": {"tools": None}}},
    },
    {"type": "session.input_audio.append", "audio": "AAAA"},
    {"type": "session.input_audio.mute"},
    {"type": "session.input_audio.unmute"},
    *({"type": f"session.{a}.append", "content": "x", "delegation_id": None} for a in APPENDS),
    {"type": "response.item.create", "item": OUTPUT},
    {"type": "response.item.create", "item": MESSAGE},
    {"type": "response.create"},
    {"type": "session.close"},
)


def events(data: bytes) -> None:
    """Checks that a text gives an event with a meaning, or an error that names its fault."""
    try:
        _mean(decode(data.decode(errors="replace")))
    except RequestError as error:
        assert error.code
        assert 0 < len(str(error)) < 2_000


def _mean(event: ClientEvent) -> None:
    """Applies the event as far as is done without a session."""
    match event:
        case LiveSessionStart(session=sent):
            configuration = configured(SessionConfiguration(), sent)
            json.dumps(session_json(configuration, "sess_1", 0, has_format=True))
        case LiveSessionChange(session=sent):
            begun = configured(SessionConfiguration(), LiveSession("m"))
            updated(begun, sent)
        case LiveInputAppend(audio=audio):
            upload = InputAudioDecoder()
            upload.push(audio)
            assert sum(len(frame.pcm) for frame in upload.take()) <= len(audio)
        case InstructionsAppend() | ThinkingAppend() | CommentaryAppend():
            Delegations("client").appended(event)
        case ResponseItemCreate(item=item):
            responses_item(item)
        case _:
            pass  # it has no fields


TARGETS = (Target(name="live_events", one_input=events, seeds=lines(EVENTS), is_json=True),)
