"""One connection in virtual time: its calls to the session, the errors it survives, and how it
ends."""

import asyncio
import json
from base64 import b64encode
from typing import Any

import numpy as np
import pytest

from core.audio import AudioFrame
from core.conversation.events import InputCleared, ResponseCreated
from core.conversation.items import FunctionOutputItem, MessageItem, TextPart
from core.errors import Conflict, EngineMissing, RequestError
from core.http.client_connection import ClientDisconnected
from pipeline.shared.settings import ResponseRequest, SessionSettings, TurnDetection
from signaling.realtime.connection import RealtimeConnection
from signaling.realtime.event_connection import (
    SAMPLES_PER_EVENT,
    SAMPLES_PER_STEP,
    DisconnectReason,
    SlowClient,
)
from signaling.realtime.protocol.audio_input import SLICE_MS
from signaling.realtime.protocol.translator import Transport
from signaling.realtime.session.settings import SessionConfiguration
from signaling.realtime.transports.sideband_outbox import SidebandOutbox
from tests.loop import VirtualClockLoop
from tests.signaling.realtime.fakes import BEGUN, Client, Event, NotedSession, converse, play

USER_ITEM = {
    "type": "message",
    "id": "item_1",
    "role": "user",
    "content": [{"type": "input_text", "text": "hi"}],
}
OUTPUT_ITEM = {"type": "function_call_output", "id": "item_2", "call_id": "c", "output": "{}"}


def append(pcm: bytes) -> Event:
    return {"type": "input_audio_buffer.append", "audio": b64encode(pcm).decode()}


ASKS: list[tuple[Event, tuple[Any, ...]]] = [
    ({"type": "input_audio_buffer.commit"}, ("commit_input",)),
    ({"type": "input_audio_buffer.clear"}, ("clear_input",)),
    (
        {"type": "conversation.item.create", "item": USER_ITEM, "previous_item_id": "root"},
        ("add_item", MessageItem("item_1", "user", (TextPart("hi"),)), "root"),
    ),
    (
        {"type": "conversation.item.create", "item": OUTPUT_ITEM},
        ("add_item", FunctionOutputItem("item_2", "c", "{}"), None),
    ),
    (
        {
            "type": "conversation.item.truncate",
            "item_id": "a",
            "content_index": 0,
            "audio_end_ms": 7,
        },
        ("truncate", "a", 7),
    ),
    ({"type": "conversation.item.delete", "item_id": "a"}, ("delete_item", "a")),
    ({"type": "conversation.item.retrieve", "item_id": "a"}, ("retrieve_item", "a")),
    ({"type": "response.create"}, ("create_response", ResponseRequest())),
    ({"type": "response.cancel", "response_id": "resp_1"}, ("cancel_response", "resp_1")),
]


@pytest.mark.parametrize(("event", "asked"), ASKS)
def test_each_event_calls_its_method_of_the_session(event: Event, asked: tuple[Any, ...]) -> None:
    client = Client()
    assert converse(client, event) == []
    assert client.session.asked == [asked]


def test_an_item_without_id_gets_one() -> None:
    client = Client()
    item = {key: value for key, value in USER_ITEM.items() if key != "id"}
    converse(client, {"type": "conversation.item.create", "item": item})
    assert client.session.asked[0][1].id.startswith("item_")


def test_an_update_is_applied_and_shown() -> None:
    client = Client()
    session = {"type": "realtime", "instructions": "Be brief.", "include": ["earshot.turn"]}
    [updated] = converse(client, {"type": "session.update", "session": session})
    assert client.session.asked == [("configure", SessionSettings(instructions="Be brief."))]
    assert updated["type"] == "session.updated"
    assert updated["session"]["instructions"] == "Be brief."
    assert updated["session"]["include"] == ["earshot.turn"]


def test_a_refused_update_changes_nothing() -> None:
    client = Client()
    client.session.refuses = RequestError(
        "not heard", code="unsupported_language", param="audio.input.transcription.language"
    )
    german = {"audio": {"input": {"transcription": {"language": "xx"}}}, "type": "realtime"}
    error, updated = converse(
        client,
        {"type": "session.update", "event_id": "c9", "session": german},
        {"type": "session.update", "session": {"type": "realtime"}},
    )
    assert error["error"] == {
        "type": "invalid_request_error",
        "code": "unsupported_language",
        "message": "not heard",
        "param": "session.audio.input.transcription.language",
        "event_id": "c9",
    }
    assert updated["session"]["audio"]["input"]["transcription"]["language"] is None


SURVIVED: list[tuple[Event | str, str, Transport]] = [
    ("{", "invalid_json", "websocket"),
    ({"type": "nonsense"}, "unknown_event_type", "websocket"),
    ({"type": "session.update", "session": {}}, "missing_required_parameter", "websocket"),
    ({"type": "conversation.item.delete"}, "missing_required_parameter", "websocket"),
    ({"type": "conversation.item.retrieve", "item_id": 1}, "invalid_type", "websocket"),
    ({"type": "output_audio_buffer.clear"}, "unsupported_event", "websocket"),
    (append(b"\0\0"), "unsupported_event", "webrtc"),
    (append(b"\0\0\0"), "invalid_audio", "websocket"),
    ({"type": "input_audio_buffer.append", "audio": "%%%%"}, "invalid_audio", "websocket"),
    ({"type": "input_audio_buffer.append", "audio": "é"}, "invalid_audio", "websocket"),
]


@pytest.mark.parametrize(("event", "code", "transport"), SURVIVED)
def test_a_connection_survives_invalid_events(
    event: Event | str, code: str, transport: Transport
) -> None:
    client = Client()
    errors = converse(client, event, {"type": "response.create"}, transport=transport)
    assert [error["error"]["code"] for error in errors] == [code]
    assert client.session.asked == [("create_response", ResponseRequest())]
    assert client.metrics.counts["earshot_errors"] == 1


@pytest.mark.parametrize(
    ("refuses", "kind", "code"),
    [
        (Conflict("no", code="response_cancel_not_active"), "invalid_request_error", None),
        (EngineMissing("asr", "whisper"), "server_error", "engine_missing"),
    ],
)
def test_an_error_of_the_session_becomes_an_error_event(
    refuses: RequestError | EngineMissing, kind: str, code: str | None
) -> None:
    client = Client()
    client.session.refuses = refuses
    [error] = converse(client, {"type": "response.cancel", "event_id": "c3"})
    assert error["error"]["type"] == kind
    assert error["error"]["code"] == (code or refuses.code)
    assert error["error"]["event_id"] == "c3"


@pytest.mark.parametrize("action", ["delete", "retrieve", "truncate"])
def test_the_error_code_for_a_missing_item_names_the_action(action: str) -> None:
    client = Client()
    client.session.refuses = RequestError("no item", code="item_not_found", param="item_id")
    kind = f"conversation.item.{action}"
    event: Event = {"type": kind, "event_id": "rci_a", "item_id": "a"}
    if action == "truncate":
        event |= {"content_index": 0, "audio_end_ms": 0}
    [sent] = converse(client, event)
    error = sent["error"]
    assert (error["code"], error["param"], error["event_id"]) == (
        f"item_{action}_invalid_item_id",
        "item_id",
        "rci_a",
    )


def test_binary_messages_are_refused() -> None:
    client = Client()

    async def scene(connection: RealtimeConnection) -> None:
        await connection.refuse_binary()
        connection.close()

    play(client, scene)
    assert client.sent[2]["error"]["code"] == "invalid_json"


def test_audio_arrives_at_16_khz_in_any_sizes() -> None:
    second = (8000 * np.sin(np.arange(24_000) / 12)).astype("<i2").tobytes()
    whole, cut = Client(), Client()
    assert converse(whole, append(second)) == []
    pieces = [second[at : at + 1234] for at in range(0, len(second), 1234)]
    assert converse(cut, *(append(piece) for piece in pieces)) == []
    at_once, in_pieces = (np.concatenate([f.pcm for f in c.session.frames]) for c in (whole, cut))
    assert np.array_equal(at_once, in_pieces)
    assert 15_900 <= len(at_once) <= 16_000
    for client in (whole, cut):
        frames = client.session.frames
        assert [f.start for f in frames[1:]] == [f.end for f in frames[:-1]]
        assert max(f.duration_ms for f in frames) <= SLICE_MS


def test_an_idle_session_ends_with_an_error() -> None:
    client = Client()

    async def scene(connection: RealtimeConnection) -> None:
        await asyncio.sleep(50)
        await connection.receive(json.dumps(append(b"\0\0")))
        await asyncio.sleep(50)
        client.session.events.put(InputCleared())

    end, seconds = play(client, scene, idle_timeout_s=60)
    assert (end, seconds) == (DisconnectReason.IDLE, 160)
    assert client.sent[-1]["error"]["code"] == "session_idle"


def test_an_event_after_the_end_is_not_applied() -> None:
    client = Client()

    async def scene(connection: RealtimeConnection) -> None:
        connection.close()
        await connection.receive('{"type":"input_audio_buffer.commit"}')

    assert play(client, scene)[0] is DisconnectReason.CLIENT
    assert client.session.asked == []


def test_the_server_can_end_the_session() -> None:
    client = Client()

    async def scene(_: RealtimeConnection) -> None:
        client.session.events.put(InputCleared())
        client.session.close()

    assert play(client, scene)[0] is DisconnectReason.SERVER
    assert client.types == [*BEGUN, "input_audio_buffer.cleared"]


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (ClientDisconnected("x"), DisconnectReason.CLIENT),
        (SlowClient("x"), DisconnectReason.LAGGING),
    ],
)
def test_an_unreachable_client_ends_the_session(error: Exception, end: DisconnectReason) -> None:
    client = Client()

    async def broken() -> None:
        raise error

    async def scene(connection: RealtimeConnection) -> None:
        client.takes = broken
        client.session.events.put(InputCleared())
        client.session.events.put(InputCleared())
        await asyncio.sleep(1)
        await connection.receive("{")

    assert play(client, scene)[0] is end
    assert client.types == BEGUN


def test_a_client_that_reads_too_slowly_is_disconnected() -> None:
    client = Client()

    async def scene(connection: RealtimeConnection) -> None:
        for _ in range(20):
            client.session.events.put(ResponseCreated("resp_1", "text"))

    assert play(client, scene)[0] is DisconnectReason.LAGGING


@pytest.mark.parametrize(("detects", "frames"), [(True, [320, 320, 320]), (False, [960])])
def test_without_turn_detection_short_appends_are_joined_before_the_next_event(
    detects: bool, frames: list[int]
) -> None:
    heard: list[int] = []

    class Noting(NotedSession):
        def commit_input(self) -> None:
            heard[:] = [len(frame.pcm) for frame in self.frames]

    detection = TurnDetection() if detects else None
    events = [*[append(bytes(2 * 480))] * 3, {"type": "input_audio_buffer.commit"}]
    terms = SessionConfiguration(SessionSettings(turn_detection=detection))
    assert converse(Client(Noting()), *events, terms=terms) == []
    assert heard == frames


def test_a_long_append_yields_to_other_tasks_and_stays_in_order() -> None:
    turns, turns_of_frames = 0, list[int]()

    class Noting(NotedSession):
        def feed(self, frame: AudioFrame) -> None:
            turns_of_frames.append(turns)

        def commit_input(self) -> None:
            turns_of_frames.append(-1)

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def upload(connection: RealtimeConnection) -> None:
        beside = asyncio.get_running_loop().create_task(others())
        for event in (append(bytes(2 * 24_000)), append(bytes(960))):
            await connection.receive(json.dumps(event))
        await connection.receive('{"type":"input_audio_buffer.commit"}')
        beside.cancel()
        connection.close()

    client = Client(Noting())
    play(client, upload)
    assert turns_of_frames.pop() == -1
    assert len(turns_of_frames) == 1000 // SLICE_MS + 1
    assert len(set(turns_of_frames)) >= 1000 // SLICE_MS, "each in another turn of the loop"


@pytest.mark.parametrize("is_text", [False, True])
@pytest.mark.parametrize("is_aside", [False, True])
def test_a_flood_of_events_yields_to_other_tasks(is_aside: bool, is_text: bool) -> None:
    client, turns = Client(), 0
    aside = SidebandOutbox(99) if is_aside else None

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def flood(connection: RealtimeConnection) -> None:
        beside = asyncio.get_running_loop().create_task(others())
        for _ in range(100):
            if is_text:
                await connection.receive('{"type":"nonsense"}', aside)
            else:
                await connection.refuse_binary(aside)
        beside.cancel()
        connection.close()

    play(client, flood)
    assert client.types.count("error") == (0 if is_aside else 100)
    assert aside is None or aside.overflowed, "it got all 100"
    assert turns >= 100 * SAMPLES_PER_EVENT // SAMPLES_PER_STEP


def test_a_flood_of_slow_events_yields_to_other_tasks() -> None:
    turns = 0

    class Slow(NotedSession):
        def configure(self, settings: SessionSettings) -> None:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualClockLoop)
            loop.now += 0.002

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def flood(connection: RealtimeConnection) -> None:
        beside = asyncio.get_running_loop().create_task(others())
        for _ in range(41):
            await connection.receive('{"type":"session.update","session":{"type":"realtime"}}')
        beside.cancel()
        connection.close()

    client = Client(Slow())
    play(client, flood)
    assert client.types.count("session.updated") == 41
    assert turns >= 40 * SAMPLES_PER_EVENT // SAMPLES_PER_STEP
