"""The events of Home Assistant, sent by the `wyoming` package's client, in usual and odd orders."""

import asyncio
import json
from ipaddress import ip_address, ip_network

import pytest
from wyoming.asr import Transcribe, Transcript
from wyoming.audio import AudioStart, AudioStop
from wyoming.event import Event
from wyoming.info import Describe, Info
from wyoming.ping import Ping, Pong
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeVoice,
)

from devices.wyoming import door
from tests.devices.slow_tools import hurry
from tests.devices.wyoming.servers import (
    SILENCE,
    SPEECH,
    Scene,
    Standings,
    client,
    kinds,
    limited,
    run,
    send,
    sound,
    texts,
    until,
)
from tests.pipeline.fakes import ToneTts

pytestmark = pytest.mark.live


def test_the_description_lists_engines_and_languages() -> None:
    (event,) = run(Scene(), Describe(), last="info")
    info = Info.from_event(event)
    assert info.asr[0].models[0].languages == ["en", "de"]
    assert info.asr[0].requires_external_vad
    assert info.tts[0].supports_synthesize_streaming
    assert info.tts[0].voices
    assert info.handle[0].installed
    for program in (*info.asr, *info.tts, *info.handle):
        assert program.version == "1.2.3"


def test_a_voice_behind_another_of_its_name_is_listed_by_its_id() -> None:
    (event,) = run(Scene(spare=ToneTts()), Describe(), last="info")
    voices = Info.from_event(event).tts[0].voices
    names = [voice.name for voice in voices]
    assert names == ["low", "high", "tief", "spare/low", "spare/high", "spare/tief"]
    assert voices[-1].languages == ["de"]


@pytest.mark.parametrize(("rate", "channels"), [(16_000, 1), (48_000, 2), (8_000, 1)])
def test_speech_is_transcribed_once(rate: int, channels: int) -> None:
    spoken = sound((SPEECH, 800), (SILENCE, 300), rate=rate, channels=channels)
    found = run(Scene(), Transcribe(language="en-US"), *spoken, last="transcript-stop")
    assert kinds(found) == ["transcript-start", "transcript-chunk", "transcript", "transcript-stop"]
    assert texts(found, "transcript") == ["one"]
    assert "".join(texts(found, "transcript-chunk")) == "one"


@pytest.mark.parametrize(
    "said",
    [
        sound((SILENCE, 500)),
        [AudioStart(16_000, 2, 1), AudioStop()],
        [AudioStop()],
    ],
)
def test_silence_and_no_audio_give_an_empty_transcript(said: list[object]) -> None:
    found = run(Scene(), Transcribe(), *said, last="transcript")
    assert texts(found, "transcript") == [""]


def test_audio_without_a_request_is_ignored() -> None:
    found = run(Scene(), *sound((SPEECH, 400)), AudioStop(), Ping(text="there"), last="pong")
    assert [Pong.from_event(event).text for event in found] == ["there"]


def test_other_and_unknown_events_do_not_disturb_an_utterance() -> None:
    start, *chunks, stop = sound((SPEECH, 600), (SILENCE, 300))
    odd = Event("something-new", {"a": [1]}, b"\x00" * 9)
    middle = len(chunks) // 2
    said = [start, *chunks[:middle], Describe(), odd, Ping(), *chunks[middle:], stop]
    found = run(Scene(), Transcribe(), *said, last="transcript")
    assert [kind for kind in kinds(found) if "transcript-" not in kind] == [
        "info",
        "pong",
        "transcript",
    ]
    assert texts(found, "transcript") == ["one"]


def test_a_connection_may_send_a_second_utterance() -> None:
    one = [Transcribe(), *sound((SPEECH, 600), (SILENCE, 300))]
    two = [Transcribe(), *sound((2 * SPEECH, 600), (SILENCE, 300)), Ping()]
    found = run(Scene(), *one, *two, last="pong")
    assert texts(found, "transcript") in (["one"], ["one", "two"])  # the pong overtakes the last


def test_an_audio_start_midway_restarts_the_utterance() -> None:
    start, *chunks, _ = sound((SPEECH, 600))
    again = sound((2 * SPEECH, 600), (SILENCE, 300))
    found = run(Scene(), Transcribe(), start, *chunks, *again, last="transcript")
    assert texts(found, "transcript") == ["two"]


def test_a_client_that_disconnects_midway_frees_everything() -> None:
    scene = Scene()

    async def main() -> None:
        async with scene.serving() as port:
            async with client(port) as one:
                await send(one, Transcribe(), *sound((SPEECH, 900))[:-1])
            async with client(port) as one:  # and the next is served
                await send(one, Transcribe(), *sound((SPEECH, 600), (SILENCE, 300)))
                found = await until(one, "transcript")
        assert texts(found, "transcript") == ["one"]

    asyncio.run(main())
    assert scene.ended == []


def test_a_text_is_synthesised() -> None:
    found = run(Scene(), Synthesize(text="Good morning."), last="audio-stop")
    assert kinds(found) == ["audio-start", "audio-chunk", "audio-stop"]
    assert found[0].data == {"rate": 22_050, "width": 2, "channels": 1, "timestamp": None}
    size = sum(len(event.payload or b"") for event in found)
    assert size > 2000
    assert all(len(event.payload or b"") % 2 == 0 for event in found)


def test_a_streamed_text_is_synthesised_once() -> None:
    """It contains a copy for older services, which must be ignored."""
    pieces = [SynthesizeChunk(text) for text in ("Good mor", "ning. How ", "are you?")]
    whole = Synthesize(text="Good morning. How are you?")
    said = [SynthesizeStart(), *pieces, whole, SynthesizeStop()]
    found = run(Scene(), *said, last="synthesize-stopped")
    assert kinds(found) == ["audio-start", "audio-chunk", "audio-stop", "synthesize-stopped"]
    alone = run(Scene(), whole, last="audio-stop")
    size, least = (sum(len(e.payload or b"") for e in events) for events in (found, alone))
    assert 0.5 < size / least < 1.5


def test_the_voice_begins_before_a_streamed_text_ends() -> None:
    async def main() -> list[str]:
        async with Scene().serving() as port, client(port) as one:
            await send(one, SynthesizeStart(), SynthesizeChunk("Good morning to you. And so on"))
            before = await until(one, "audio-chunk")
            await send(one, SynthesizeChunk(" it goes."), SynthesizeStop())
            return kinds([*before, *await until(one, "synthesize-stopped")])

    assert asyncio.run(main()) == ["audio-start", "audio-chunk", "audio-stop", "synthesize-stopped"]


def test_a_question_is_answered_and_its_conversation_kept() -> None:
    scene = Scene()
    context = {"conversation_id": "kitchen", "device_id": "d"}
    asked = [
        Transcript(text=text, language="en", context=context).event()
        for text in ("what is first", "what is second")
    ]

    async def main() -> list[Event]:
        async with scene.serving() as port:
            found = []
            for event in asked:  # Home Assistant makes a connection for each
                async with client(port) as one:
                    await send(one, event)
                    found += await until(one, "handled-stop")
            return found

    found = asyncio.run(main())
    assert kinds(found) == 2 * ["handled-start", "handled-chunk", "handled", "handled-stop"]
    answers = [event for event in found if event.type == "handled"]
    assert all(event.data["context"] == context for event in answers)
    history = scene.conversations.get("wyoming-kitchen").history
    assert len(history.items) == 4


def test_a_slow_tool_is_bridged_for_streaming_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)
    found = run(Scene(), Transcript(text="four", language="en").event(), last="handled-stop")
    assert texts(found, "handled-chunk")[0] == "One moment, please. "
    assert texts(found, "handled") == ["you said it is 4."]


BAD = [
    (Event("transcribe", {"language": "fr"}), "unsupported_language", "en, de"),
    (Event("transcribe", {"name": "large-v9"}), "model_not_found", "level"),
    (Event("transcribe", {"language": 7}), "invalid_value", "language must be a text"),
    (Event("synthesize", {}), "missing_required_parameter", "text"),
    (Event("synthesize", {"text": "a" * 20_000}), "invalid_value", "16384"),
    (Event("synthesize", {"text": "a", "voice": 3}), "invalid_value", "voice must be an object"),
    (Event("synthesize", {"text": "a", "text_format": "ssml"}), "invalid_value", "SSML"),
    (
        Synthesize(text="a", voice=SynthesizeVoice(name="nobody")).event(),
        "voice_not_found",
        "no voice 'nobody'",
    ),
    (Event("transcript", {}), "missing_required_parameter", "text"),
    (Event("audio-start", {"rate": 3, "width": 2, "channels": 1}), "invalid_value", "rate is 3"),
    (Event("audio-start", {"rate": 16000, "width": 1, "channels": 1}), "invalid_value", "2, 3, 4"),
    (Event("audio-start", {"rate": "x", "width": 1, "channels": 1}), "invalid_value", "whole"),
]


@pytest.mark.parametrize(("event", "code", "words"), BAD, ids=lambda one: str(one)[:40])
def test_a_wrong_event_is_named_and_the_connection_closed(
    event: Event, code: str, words: str
) -> None:
    *_, error = run(Scene(), event, last="nothing")
    assert error.type == "error"
    assert error.data["code"] == code
    assert words in error.data["text"]


LINES = [
    b"GET / HTTP/1.1\r\n\r\n",
    b'{"data": {}}\n',
    b'{"type": "describe", "data_length": -1}\n',
    b'{"type": "describe", "data_length": 99999999999}\n',
    b'{"type": "audio-chunk", "payload_length": 1048577}\n',
    b'{"type": "describe", "data_length": 3}\n[1]',
    b"[" * 70_000 + b"\n",
    b"\xff\xfe\n",
]


@pytest.mark.parametrize("line", LINES, ids=lambda line: str(line[:40]))
def test_bytes_that_are_not_wyoming_end_only_their_connection(line: bytes) -> None:
    scene = Scene()

    async def main() -> None:
        async with scene.serving() as port, client(port) as other:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(line)
            await reader.read()  # to the end
            writer.close()
            await send(other, Ping(text="still"))
            assert kinds(await until(other, "pong")) == ["pong"]

    asyncio.run(main())
    assert [getattr(error, "code", "") for error in scene.ended] == ["protocol_error"]


def test_a_header_with_its_data_inside_is_read() -> None:
    async def main() -> bytes:
        async with Scene().serving() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(json.dumps({"type": "ping", "data": {"text": "in"}}).encode() + b"\n")
            found = await reader.readuntil(b"}")
            writer.close()
            return found

    assert b'"pong"' in asyncio.run(main())


def test_clients_of_unnamed_networks_are_refused() -> None:
    scene = limited(Scene(), networks=(ip_network("192.0.2.0/24"),))
    assert run(scene, Describe(), last="info") == []


def test_one_address_may_use_half_of_the_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    here = ip_address("192.0.2.7")
    monkeypatch.setattr(door, "peer_address", lambda _: here)
    scene = limited(Scene(), networks=(ip_network("192.0.2.0/24"),), max_connections=2)

    async def main() -> None:
        async with scene.serving() as port, client(port) as first:
            await send(first, Ping())
            await until(first, "pong")
            async with client(port) as second:
                (error,) = await until(second, "error")
                assert error.data["code"] == "server_full"
                assert "192.0.2.7" in error.data["text"]

    asyncio.run(main())


def test_an_unapproved_client_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it reads the reason, the others are served."""
    monkeypatch.setattr(door, "peer_address", lambda _: ip_address("192.0.2.7"))
    scene = limited(Scene(), networks=(ip_network("192.0.2.0/24"),), max_connections=1)
    scene.directory = Standings("new")

    async def main() -> None:
        async with scene.serving() as port, client(port) as first:
            await until(first, "error")
            scene.directory.standing = "approved"
            async with client(port) as second:
                await send(second, Ping())
                assert kinds(await until(second, "pong")) == ["pong"]

    asyncio.run(main())


def test_the_number_of_connections_is_limited() -> None:
    scene = limited(Scene(), max_connections=1)

    async def main() -> None:
        async with scene.serving() as port:
            async with client(port) as one:
                await send(one, Ping())
                assert kinds(await until(one, "pong")) == ["pong"]
                async with client(port) as other:
                    (error,) = await until(other, "error")
                    assert error.data["code"] == "server_full"
            async with asyncio.timeout(30):
                while not await _is_served(port):  # the first one's end takes a moment
                    pass

    asyncio.run(main())


async def _is_served(port: int) -> bool:
    async with client(port) as one:
        await send(one, Ping())
        return kinds(await until(one, "pong")) == ["pong"]
