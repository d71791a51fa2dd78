"""The input from Willow's devices: any bytes, and whole conversations of several devices."""

import json
import random
from typing import Any
from urllib.parse import parse_qsl

from core.errors import RequestError
from devices.fleet.arbitration import Arbitration, WakeLevel
from devices.willow.wis.chat_params import read_question
from devices.willow.wis.rtc.messages import read_message
from devices.willow.wis.tts import MAX_TEXT_CHARS as MAX_SPOKEN_CHARS
from devices.willow.wis.tts import read_text
from devices.willow.wis.upload import WillowAudioFormat
from firmware_protocol.willow.decode import MAX_TEXT_CHARS, MalformedMessage, decode
from firmware_protocol.willow.encode import MAX_MESSAGE_BYTES, encode
from firmware_protocol.willow.messages import Endpoint, EndpointResult, Notify, UnknownMessage
from tests.firmware_protocol.willow.vectors import FROM_DEVICE
from tests.fuzz.choices import drawn, scripts
from tests.fuzz.target import Target, lines

SEEDS: tuple[Any, ...] = tuple(json.loads(one.wire) for one in FROM_DEVICE)
CALLS: tuple[Any, ...] = (
    {"type": "ping", "message": "1"},
    {"type": "start", "obj": {"partials": True, "model": "large"}},
    {"type": "stop", "message": "", "obj": {"beam_size": 2, "detect_language": True}},
)
QUERIES = (
    b"text=is+it+on&language=de_AT&model=default&conversation_id=k",
    b"text=x&max_new_tokens=16&temperature=0.7&top_p=0.9&repetition_penalty=1.1",
    b"x-audio-codec=wav&x-audio-sample-rate=16000&x-audio-bits=24&x-audio-channel=2",
)
TEXT = 'ab \n\r\t"\\é😀\x00\u2028…'
SAID = tuple((TEXT * times).encode() for times in (1, 20, 200))


def messages(data: bytes) -> None:
    """Checks that a device's message gives a value within its bounds, or a short error."""
    try:
        message = decode(data)
    except MalformedMessage as error:
        assert len(str(error)) < 200
        return
    match message:
        case Endpoint(text, language):
            assert len(text) <= MAX_TEXT_CHARS
            assert "\n" not in text + language
        case UnknownMessage(names):
            assert len(str(names)) < 1000


def call_messages(data: bytes) -> None:
    """Checks messages on a call's data channel."""
    try:
        read_message(data.decode(errors="replace"))
    except RequestError as error:
        _check_told(error)


def queries(data: bytes) -> None:
    """Checks that a query gives a question or an audio format, or an error that names the field."""
    sent = dict(parse_qsl(data.decode(errors="replace"), keep_blank_values=True))
    try:
        question = read_question(sent, read_text(sent))
    except RequestError as error:
        assert error.param
        _check_told(error)
    else:
        assert 0 < len(question.text) <= MAX_SPOKEN_CHARS
        assert question.temperature is None or 0 <= question.temperature <= 2
        assert question.max_output_tokens is None or question.max_output_tokens >= 1
        assert question.conversation_id is None or len(question.conversation_id) <= 128
    try:
        WillowAudioFormat.of(sent).decoder()
    except RequestError as error:
        assert error.param
        _check_told(error)


def _check_told(error: RequestError) -> None:
    assert error.code
    assert len(str(error)) < 500
    str(error).encode()


def encoding(data: bytes) -> None:
    """Checks that any text fits the firmware's buffer, in one line."""
    text = data.decode(errors="replace")
    for message in (
        EndpointResult(ok=True, speech=text),
        Notify(id=2, text=text, audio_url="http://a/"),
    ):
        wire = encode(message)
        assert len(wire.encode()) <= MAX_MESSAGE_BYTES
        fields = json.loads(wire)
        said = fields["result"]["speech"] if "result" in fields else fields["data"]["text"]
        assert not set("\n\r\t\x00\u2028") & set(said)


def waking(lottery: random.Random) -> None:
    """Checks wake words, departures and moments in any order: each device gets exactly one verdict
    per wake word that it waits for."""
    race, now = Arbitration(), 0.0
    group = {name: lottery.choice("xy") for name in "abcdef"}
    waiting = dict.fromkeys(group, 0)
    for _ in range(lottery.randrange(30)):
        now += lottery.choice((0.0, 0.05, 0.2, 2.0)) * lottery.random()
        device = lottery.choice("abcdef")
        members = frozenset(name for name, its in group.items() if its == group[device])
        match lottery.randrange(6):
            case 0:
                told = race.tick(now)
            case 1:
                told = race.remove(device)
                waiting[device] = 0
            case 2:
                told = race.claim(group[device], device, now)
            case 3:
                heard = WakeLevel(lottery.uniform(-90, 0), "first_audio")
                is_complete = lottery.random() < 0.5
                told = race.measure(group[device], device, heard, is_complete=is_complete)
            case _:
                level = lottery.choice((None, WakeLevel(lottery.uniform(-90, 0))))
                waiting[device] += 1
                is_measuring = lottery.random() < 0.5
                told = race.report(
                    group[device], device, level, members, now, is_measuring=is_measuring
                )
        for verdict in told:
            waiting[verdict.device] -= 1
    for verdict in race.tick(now + 10):
        waiting[verdict.device] -= 1
    assert set(waiting.values()) <= {0}


TARGETS = (
    Target(name="willow_messages", one_input=messages, seeds=lines(SEEDS), is_json=True),
    Target(name="willow_call_messages", one_input=call_messages, seeds=lines(CALLS), is_json=True),
    Target(
        name="willow_queries",
        one_input=queries,
        seeds=QUERIES,
        words=("nan", "1e309", "9" * 40, "%00", "%ff", "amrwb", "pcm", "&text=", "&temperature="),
    ),
    Target(name="willow_answers", one_input=encoding, seeds=SAID, max_bytes=6000),
    Target(name="willow_wakes", one_input=drawn(waking), seeds=scripts()),
)
