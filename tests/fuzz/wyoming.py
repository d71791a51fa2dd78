"""The input of the Wyoming server: events of any bytes, and in any order."""

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, TypeVar

import msgspec
from wyoming.event import Event, read_event

from core.errors import EarshotError, RemoteProtocolError, RequestError
from devices.wyoming.connection import IDLE_S, WyomingConnection
from devices.wyoming.framing import MAX_HEADER_BYTES, MAX_PAYLOAD_BYTES, WyomingStream
from devices.wyoming.requests import (
    MAX_HOTWORDS_CHARS,
    MAX_ID_CHARS,
    MAX_TEXT_CHARS,
    base_language,
    conversation_of,
    read_detect,
    read_format,
    read_text,
    read_timestamp,
    read_transcribe,
    read_voice_request,
    text_language,
)
from engines.base.wake import WakeWord, WakeWordDetector
from pipeline.services import EngineSet
from tests.devices.wyoming.servers import Scene
from tests.fuzz.choices import drawn, scripts
from tests.fuzz.mutate import mutated_json, odd_json
from tests.fuzz.shared_loop import run_kept
from tests.fuzz.target import Target, lines
from tests.pipeline.fakes import EchoLlm, LevelAsr, LoudVads, ToneTts

_T = TypeVar("_T")

FORM = {"rate": 16_000, "width": 2, "channels": 1, "timestamp": 0}
VOICE = {"name": "low", "language": "en-US", "speaker": None}
CONTEXT = {"conversation_id": "kitchen", "device_id": "d"}
TERMS = {"transcript_names": ["Ada"], "transcript_terms": ["kettle, the"]}
EVENTS: tuple[tuple[str, dict[str, Any], bytes], ...] = (
    ("describe", {}, b""),
    ("ping", {"text": "there"}, b""),
    ("transcribe", {"name": None, "language": "en_GB", "context": CONTEXT, **TERMS}, b""),
    ("audio-start", FORM, b""),
    ("audio-chunk", FORM, b"\xe8\x03" * 8000),
    ("audio-chunk", {**FORM, "width": 3, "channels": 2, "rate": 48_000}, b"\xe8\x03" * 512),
    ("audio-stop", {"timestamp": 32}, b""),
    ("transcript", {"text": "what is it", "language": "en", "context": CONTEXT}, b""),
    ("synthesize", {"text": "Good day.", "voice": VOICE, "text_format": "text"}, b""),
    ("synthesize-start", {"voice": VOICE, "context": CONTEXT}, b""),
    ("synthesize-chunk", {"text": "Good day. How"}, b""),
    ("synthesize-stop", {}, b""),
    ("select-program", {"name": "earshot"}, b""),
)

ASKED = (
    *(data for _, data, _ in EVENTS if data),
    {"names": ["okay_nabu", "hey_jarvis"], "text": "Good day.", **FORM, **TERMS},
    {"name": "level", "voice": {"name": "tief"}, "transcript_terms": ["Ada " * 600] * 2},
    {"names": ["A" * 4000]},
)


@dataclass(frozen=True, slots=True)
class Words:
    """A wake word engine of which only the names are used."""

    name: str = "words"
    words: tuple[WakeWord, ...] = tuple(
        WakeWord(name, name, ("en",)) for name in ("okay_nabu", "hey_jarvis")
    )

    def open(self, names: Sequence[str]) -> WakeWordDetector:
        raise NotImplementedError(names)


ASR = LevelAsr(languages=("en", "de"), supports=("hotwords",))
WAKE = Words()
ENGINES = EngineSet(
    LoudVads(), {"default": ASR, "level": ASR}, {"default": EchoLlm()}, {"default": ToneTts()}
)


class Line:
    """A connection that accepts and keeps all that is sent."""

    def __init__(self) -> None:
        self.sent = bytearray()

    def writelines(self, parts: tuple[bytes, ...]) -> None:
        self.sent += b"".join(parts)

    def write(self, data: bytes) -> None:
        self.sent += data

    async def drain(self) -> None: ...


def reading(data: bytes) -> None:
    """Checks that events are within their bounds, until the end or an error that a client can read,
    and that the library reads them as we did. The first two bytes say where the stream is cut."""
    stream = data[2:]
    first, second = sorted(byte * len(stream) // 256 for byte in data[:2].ljust(2))
    run_kept(_read([stream[:first], stream[first:second], stream[second:]]))


async def _read(pieces: list[bytes]) -> None:
    reader, line = asyncio.StreamReader(MAX_HEADER_BYTES), Line()
    wire = WyomingStream(reader, line)  # type: ignore[arg-type]
    asyncio.get_running_loop().call_soon(_feed, reader, pieces)
    events: list[Event] = []
    try:
        while (event := await wire.read(IDLE_S)) is not None:
            assert len(event.payload or b"") <= MAX_PAYLOAD_BYTES
            events.append(event)
    except RemoteProtocolError as error:
        assert len(str(error)) < 1000
        str(error).encode()
    await wire.send_raw(events)
    library = BytesIO(line.sent)
    for event in events:
        assert read_event(library) == event


def _feed(reader: asyncio.StreamReader, pieces: list[bytes]) -> None:
    """Feeds one piece in each step of the loop."""
    reader.feed_data(pieces[0])
    if rest := pieces[1:]:
        asyncio.get_running_loop().call_soon(_feed, reader, rest)
    else:
        reader.feed_eof()


def talking(lottery: random.Random) -> None:
    """Checks that each connection ends with its client or an error, whatever is asked in any
    order."""
    pauses = (0.0, 0.0, 0.01, 1.0)
    said = [(_event(lottery), lottery.choice(pauses)) for _ in range(lottery.randrange(12))]
    line = Line()
    took_s = run_kept(_talk(said, line))
    assert took_s <= sum(pause_s for _, pause_s in said) + 1
    _check(bytes(line.sent))


async def _talk(said: list[tuple[bytes, float]], line: Line) -> None:
    scene = Scene()
    scene.door()
    reader = asyncio.StreamReader(MAX_HEADER_BYTES)

    async def speak() -> None:
        for event, pause_s in said:
            reader.feed_data(event)
            await asyncio.sleep(pause_s)
        reader.feed_eof()

    try:
        async with asyncio.TaskGroup() as tasks:
            speaking = tasks.create_task(speak())
            wire = WyomingStream(reader, line)  # type: ignore[arg-type]
            async with asyncio.TaskGroup() as work:
                await WyomingConnection(wire, scene.services, work, lambda: None).run()
            speaking.cancel()
    except* EarshotError as group:
        assert all(one.code for one in _leaves(group))
    assert (scene.exchanges.count, len(asyncio.all_tasks())) == (0, 1)


def _leaves(group: BaseExceptionGroup[EarshotError]) -> list[EarshotError]:
    found: list[EarshotError] = []
    for one in group.exceptions:
        found += _leaves(one) if isinstance(one, BaseExceptionGroup) else [one]
    return found


def _check(sent: bytes) -> None:
    """Asserts that all bytes are Wyoming events."""
    while sent:
        line, _, sent = sent.partition(b"\n")
        header = json.loads(line)
        sent = sent[header.get("data_length", 0) + header.get("payload_length", 0) :]


def _event(lottery: random.Random) -> bytes:
    kind, data, payload = lottery.choice(EVENTS)
    if lottery.random() < 0.3:
        data = mutated_json(lottery, data)
    if lottery.random() < 0.1:
        payload = payload[: lottery.randrange(len(payload) + 1)]
    body = json.dumps(data).encode()
    header: dict[str, Any] = {"type": kind, "version": "1.10.2"}
    if lottery.random() < 0.2:
        header["data"], body = data, b""
    if body:
        header["data_length"] = len(body)
    if payload or lottery.random() < 0.1:
        header["payload_length"] = len(payload)
    if lottery.random() < 0.05:
        header[lottery.choice(tuple(header))] = odd_json(lottery)
    return json.dumps(header).encode() + b"\n" + body + payload


def asking(data: bytes) -> None:
    """Checks that one object of fields, read as each event that has fields, gives values within
    their bounds that are read again unchanged, or an error that names the field."""
    try:
        event = Event("any", msgspec.json.decode(data, type=dict[str, Any]))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return
    if form := _asked(read_format, event):
        assert 8000 <= form.rate_hz <= 192_000
        again = {"rate": form.rate_hz, "width": form.bits // 8, "channels": form.channels}
        assert read_format(Event("any", again)) == form
    if transcribe := _asked(read_transcribe, event, ENGINES):
        name, options = transcribe
        assert ENGINES.recogniser(name) is ASR
        assert options.language in (None, *ASR.info.languages)
        assert len(options.hotwords or "") <= MAX_HOTWORDS_CHARS
    if detect := _asked(read_detect, event, WAKE):
        _, names = detect
        assert 0 < len(set(names)) == len(names)
        assert set(names) <= {word.name for word in WAKE.words}
    if voicing := _asked(read_voice_request, event, ENGINES):
        for said in (voicing.voice, voicing.language):
            assert said is None or 0 < len(said) <= 256
        assert voicing.language is None or base_language(voicing.language) == voicing.language
    text, conversation = _asked(read_text, event), _asked(conversation_of, event)
    assert text is None or len(text) <= MAX_TEXT_CHARS
    assert conversation is None or len(conversation.removeprefix("wyoming-")) <= MAX_ID_CHARS
    assert isinstance(_asked(read_timestamp, event), int | None)
    language = _asked(text_language, event)
    assert language is None or base_language(language) == language


def _asked(read: Callable[..., _T], event: Event, *known: object) -> _T | None:
    """Reads the event; returns None if it is refused with an error for the client."""
    try:
        return read(event, *known)
    except EarshotError as error:
        assert isinstance(error, RequestError)
        assert error.code
        assert error.param
        assert len(str(error)) < 3000  # 256 characters may take ten each when shown
        str(error).encode()
        return None


def _written(kind: str, data: dict[str, Any], payload: bytes) -> bytes:
    body = json.dumps(data).encode()
    sizes = {"data_length": len(body), "payload_length": len(payload)}
    header = json.dumps({"type": kind, "version": "1.10.2", **sizes}).encode()
    return header + b"\n" + body + payload


TARGETS = (
    Target(
        name="wyoming_events",
        one_input=reading,
        seeds=(
            *(b"\x60\xa0" + _written(kind, data, payload[:64]) for kind, data, payload in EVENTS),
            b"\x80\xf0" + _written(*EVENTS[0]) + _written(*EVENTS[1]),
        ),
        words=('"data_length":', '"payload_length":', '"data":', '"type":', "\n"),
    ),
    Target(name="wyoming_asked", one_input=asking, seeds=lines(ASKED), is_json=True),
    Target(name="wyoming_talks", one_input=drawn(talking), seeds=scripts(), few=500, many=100_000),
)
