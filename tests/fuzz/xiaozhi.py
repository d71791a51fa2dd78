"""The input from a xiaozhi board: frames and texts of any bytes, and tools of any shape."""

import json
import random
from typing import Any, assert_never
from urllib.parse import parse_qsl

from core.errors import RequestError
from devices.xiaozhi.audio import DeviceAudioInput
from devices.xiaozhi.ota_check import MAX_NAME_CHARS, claims_of
from firmware_protocol.xiaozhi.errors import BadFrame, BadMessage
from firmware_protocol.xiaozhi.framing import (
    MAX_PAYLOAD_BYTES,
    VERSIONS,
    AudioPacket,
    decode_frame,
    encode_audio,
)
from firmware_protocol.xiaozhi.json_codec import (
    decode_device_message,
    decode_server_message,
    encode_message,
)
from firmware_protocol.xiaozhi.mcp import MAX_RESULT_CHARS, MAX_TOOLS, DeviceMcpClient
from firmware_protocol.xiaozhi.messages import McpAnswer, TtsMessage
from firmware_protocol.xiaozhi.state_machine import CloseConnection, Dialogue, SendMessage
from tests.firmware_protocol.xiaozhi.vectors import frame_of, frames, messages, text_of
from tests.fuzz.choices import drawn, scripts
from tests.fuzz.mutate import mutated_json, odd_json
from tests.fuzz.target import Target

FRAMES = tuple(frame_of(case) for good in (True, False) for case in frames(good=good))
TEXTS = tuple(
    text_of(case) for sender in ("device", "server") for case in messages(sender, good=True)
)
CHECK_IN = (
    b"Device-Id=a1:b2:c3:d4:e5:f6&User-Agent=bread/2.4.2&Accept-Language=de-DE\n"
    b'{"application":{"version":"2.4.2"},"board":{"name":"kitchen","type":"bread"}}'
)
OBJECTS = tuple(json.loads(text) for text in TEXTS)
RESULTS: tuple[dict[str, Any], ...] = (
    {"serverInfo": {"name": "bread", "version": "2.4.2"}},
    {"tools": [{"name": "self.a.b", "description": "x", "inputSchema": {}}], "nextCursor": "c"},
    {"content": [{"type": "text", "text": "true"}], "isError": False},
    {"content": [{"type": "image", "image": "{}"}]},
)


def reading_frames(data: bytes) -> None:
    """Checks that each version's frame gives a value that is written as it was read, or a short
    error."""
    for version in VERSIONS:
        try:
            packet = decode_frame(version, data)
        except BadFrame as error:
            assert len(str(error)) < 200
            continue
        assert len(packet.payload) <= MAX_PAYLOAD_BYTES
        if isinstance(packet, AudioPacket):
            again = encode_audio(version, packet.payload, packet.timestamp_ms)
            assert decode_frame(version, again) == packet


def reading_texts(data: bytes) -> None:
    """Checks that a text gives a value that can be written, or a short error."""
    text = data.decode(errors="replace")
    for decode in (decode_device_message, decode_server_message):
        try:
            message = decode(text)
            encode_message(message)
        except BadMessage as error:
            assert len(str(error)) < 300
            assert str(error).isprintable()


def checking_in(data: bytes) -> None:
    """Checks that a check-in gives a contact of bounded names, or a refusal. The first line of the
    input has the headers, the rest is the body."""
    first, _, body = data.partition(b"\n")
    try:
        headers = dict(parse_qsl(first.decode(errors="replace"), keep_blank_values=True))
        contact = claims_of(headers, body, "192.0.2.1")
    except RequestError as error:
        assert error.param == "Device-Id"
    else:
        shown = (contact.name, contact.board, contact.firmware, contact.language)
        assert all(len(one) <= MAX_NAME_CHARS and (one + " ").isprintable() for one in shown)


def conversing(lottery: random.Random) -> None:
    """Checks that `tts start` and `tts stop` alternate in any order of events, and that a
    connection ends."""
    dialogue, now, is_speaking, has_hung_up = Dialogue("s", 0.0), 0.0, False, False
    for _ in range(lottery.randrange(1, 60)):
        now += lottery.choice((0.0, 0.02, 0.5, 5.0))
        for action in _event(lottery, dialogue, now):
            if isinstance(action, CloseConnection):
                has_hung_up = True
            if isinstance(action, SendMessage) and isinstance(action.message, TtsMessage):
                match action.message.state:
                    case "start":
                        assert not is_speaking
                        is_speaking = True
                    case "stop":
                        is_speaking = False
                    case "sentence_start" | "sentence_end":
                        assert is_speaking
                    case _:
                        assert_never(action.message.state)
        assert is_speaking == dialogue.is_speaking
        assert not (dialogue.takes_audio and dialogue.activity == "idle")
    for _ in range(200):  # silence ends every conversation
        now += 10
        actions = dialogue.tick(now, is_answering=False)
        has_hung_up |= any(isinstance(action, CloseConnection) for action in actions)
        if has_hung_up:
            break
    assert has_hung_up
    assert not dialogue.is_speaking


def _event(lottery: random.Random, dialogue: Dialogue, now: float) -> Any:
    match lottery.randrange(10):
        case 0 | 1 | 2:
            try:
                message = decode_device_message(_said(lottery))
            except BadMessage:
                return ()
            return () if isinstance(message, McpAnswer) else dialogue.receive(message, now)
        case 3:
            dialogue.speech_started(now)
        case 4:
            dialogue.speech_ended(now)
        case 5:
            words, is_answered = lottery.choice(("", "one")), lottery.random() < 0.8
            return dialogue.final_transcript(words, now, is_answered=is_answered)
        case 6:
            return dialogue.answer_begun(now)
        case 7:
            return [*dialogue.clause("Yes."), *dialogue.partial_transcript("on")]
        case 8:
            return dialogue.interrupted()
        case _:
            dialogue.pacer.sent(now)
            return dialogue.tick(now, is_answering=lottery.random() < 0.5)
    return ()


def _said(lottery: random.Random) -> str:
    if lottery.random() < 0.9:
        return lottery.choice(TEXTS)
    return json.dumps(mutated_json(lottery, lottery.choice(OBJECTS)))


def tools(lottery: random.Random) -> None:
    """Checks that the answers of a board's tool server are bounded."""
    client = DeviceMcpClient()
    for _ in range(lottery.randrange(1, 20)):
        asked = lottery.choice((client.initialize, client.list_tools))()
        if lottery.random() < 0.5:
            _, asked = client.call("self.a", {})
        payload = {"jsonrpc": "2.0", "id": asked["id"], "result": lottery.choice(RESULTS)}
        if lottery.random() < 0.7:
            payload = mutated_json(lottery, payload)
        if lottery.random() < 0.1:
            payload = {"id": asked["id"], "error": odd_json(lottery)}
        if isinstance(payload, dict):
            told = client.receive(payload)
            assert len(getattr(told, "text", "")) <= MAX_RESULT_CHARS
            assert len(getattr(told, "tools", ())) <= MAX_TOOLS


def hearing(lottery: random.Random) -> None:
    """Checks that packets of any bytes give sound or silence, never longer than Opus can be."""
    ear, samples = DeviceAudioInput(), 0
    for _ in range(5):
        packet = lottery.randbytes(lottery.choice((0, 1, 3, 4, 60, 200, 2000)))
        samples += sum(len(frame.pcm) for frame in ear.decode(packet, 60))
    assert samples <= 5 * 120 * 16


TARGETS = (
    Target(name="xiaozhi_frames", one_input=reading_frames, seeds=FRAMES, max_bytes=8192),
    Target(
        name="xiaozhi_texts",
        one_input=reading_texts,
        seeds=tuple(text.encode() for text in TEXTS),
        is_json=True,
    ),
    Target(name="xiaozhi_check_in", one_input=checking_in, seeds=(CHECK_IN,), is_json=True),
    Target(name="xiaozhi_turns", one_input=drawn(conversing), seeds=scripts(), few=3000),
    # Each has some ten messages, or five packets, so a million in all.
    Target(name="xiaozhi_tools", one_input=drawn(tools), seeds=scripts(), few=3000, many=100_000),
    Target(
        name="xiaozhi_sound",
        one_input=drawn(hearing),
        seeds=scripts(4000),
        few=2000,
        many=200_000,
    ),
)
