"""Events of a Realtime client, one of each kind, which the fuzzer changes."""

import base64
from typing import Any

TURN_DETECTION: tuple[Any, ...] = (
    None,
    {"type": "semantic_vad", "eagerness": "high", "create_response": True},
    {"type": "server_vad", "threshold": 0.5, "prefix_padding_ms": 300, "silence_duration_ms": 200},
    {"type": "server_vad", "idle_timeout_ms": 5000},
)
TOOL = {"type": "function", "name": "lamp", "parameters": {"type": "object"}}
SESSIONS: tuple[Any, ...] = (
    *({"type": "realtime", "audio": {"input": {"turn_detection": d}}} for d in TURN_DETECTION),
    {
        "type": "realtime",
        "instructions": "Be kind.",
        "output_modalities": ["text"],
        "include": ["earshot.hypothesis", "earshot.turn"],
        "audio": {
            "input": {
                "format": {"type": "audio/pcm", "rate": 24000},
                "transcription": {"model": "whisper-1", "language": "de"},
            },
            "output": {"voice": "high", "speed": 1.2},
        },
    },
    {"type": "realtime", "output_modalities": ["audio"], "tools": [], "tool_choice": "auto"},
    {"type": "realtime", "tools": [TOOL], "tool_choice": {"type": "function", "name": "lamp"}},
    {"type": "realtime", "tools": [TOOL, {**TOOL, "name": "add"}], "tool_choice": "required"},
    {
        "type": "realtime",
        "audio": {
            "input": {"format": {"type": "audio/pcmu"}},
            "output": {"format": {"type": "audio/pcma"}},
        },
    },
    {"type": "transcription", "audio": {"input": {"transcription": {"model": "default"}}}},
)
ITEMS: tuple[Any, ...] = (
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "two"}]},
    {
        "type": "message",
        "id": "item_a",
        "role": "assistant",
        "content": [{"type": "output_audio", "transcript": "yes"}],
    },
    {"type": "function_call", "call_id": "c", "name": "add", "arguments": '{"a":1,"b":2}'},
    {"type": "function_call_output", "call_id": "c", "output": "3"},
)
EVENTS: tuple[Any, ...] = (
    *({"type": "session.update", "event_id": "e", "session": session} for session in SESSIONS),
    *({"type": "conversation.item.create", "item": item} for item in ITEMS),
    {"type": "conversation.item.create", "item": ITEMS[0], "previous_item_id": "item_a"},
    {
        "type": "conversation.item.truncate",
        "item_id": "item_a",
        "content_index": 0,
        "audio_end_ms": 9,
    },
    {"type": "conversation.item.delete", "item_id": "item_a"},
    {"type": "conversation.item.retrieve", "item_id": "item_a"},
    {"type": "input_audio_buffer.append", "audio": base64.b64encode(bytes(960)).decode()},
    {"type": "input_audio_buffer.append", "audio": base64.b64encode(bytes(range(99))).decode()},
    {"type": "input_audio_buffer.commit"},
    {"type": "input_audio_buffer.clear"},
    {"type": "output_audio_buffer.clear"},
    {"type": "response.create"},
    {
        "type": "response.create",
        "response": {
            "output_modalities": ["text"],
            "instructions": "Shout.",
            "conversation": "none",
            "metadata": {"a": "b"},
        },
    },
    {
        "type": "response.create",
        "response": {
            "input": [ITEMS[0], {"type": "item_reference", "id": "item_a"}],
            "tools": [TOOL],
            "tool_choice": "required",
            "max_output_tokens": 5,
        },
    },
    {"type": "response.cancel"},
    {"type": "response.cancel", "response_id": "resp_1"},
)
BETA_EVENTS: tuple[Any, ...] = (
    {
        "type": "session.update",
        "session": {
            "modalities": ["text", "audio"],
            "voice": "high",
            "input_audio_format": "g711_ulaw",
            "output_audio_format": "pcm16",
            "turn_detection": TURN_DETECTION[2],
            "temperature": 0.8,
            "max_response_output_tokens": "inf",
        },
    },
    {
        "type": "transcription_session.update",
        "session": {"input_audio_transcription": {"model": "whisper-1"}},
    },
    {
        "type": "conversation.item.create",
        "item": {"role": "assistant", "type": "message", "content": [{"type": "text"}]},
    },
    {"type": "response.create", "response": {"modalities": ["text"], "input": [ITEMS[0]]}},
)
