"""The WebSocket API with real sessions: whole turns, refusals, and every kind of end."""

import asyncio
import json
from base64 import b64decode, b64encode
from typing import Any

import numpy as np
import pytest
from aiohttp import WSCloseCode, WSMsgType, WSServerHandshakeError

from signaling.realtime.door import RealtimeSettings
from signaling.realtime.protocol.decode import MAX_APPEND_BYTES, MAX_EVENT_BYTES
from tests.pipeline.wakeful import WORD_LEVEL, WakefulWorld
from tests.server.http.harness import error_of
from tests.signaling.realtime.client_events import expect, update
from tests.signaling.realtime.servers import Server, Setup, against

pytestmark = pytest.mark.live

LEVEL_ONE = 1000
"The level that the scripted recogniser takes for the word `one`."


def pcm(*runs: tuple[int, int]) -> str:
    """Returns runs of (level, ms) at 24 kHz, in base64."""
    samples = np.concatenate([np.full(24 * ms, level, "<i2") for level, ms in runs])
    return b64encode(samples.tobytes()).decode()


def test_a_written_turn() -> None:
    async def scene(server: Server) -> None:
        async with server.client.ws_connect("/v1/realtime?model=default") as ws:
            [created] = await expect(ws, "session.created")
            assert created["session"]["id"].startswith("sess_")
            assert created["session"]["audio"]["input"]["turn_detection"]["type"] == "server_vad"
            await update(ws, output_modalities=["text"])
            content = [{"type": "input_text", "text": "hello"}]
            item = {"type": "message", "role": "user", "content": content}
            await ws.send_json({"type": "conversation.item.create", "item": item})
            await ws.send_json({"type": "response.create"})
            events = await expect(ws, "response.done")
            [done] = [e for e in events if e["type"] == "response.output_text.done"]
            assert done["text"].strip() == "you said hello."
            assert events[-1]["response"]["status"] == "completed"

    against(scene)


def test_a_session_waits_for_its_wake_word_and_reports_it() -> None:
    setup = Setup(world=WakefulWorld())

    async def scene(server: Server) -> None:
        async with server.client.ws_connect("/v1/realtime?model=default") as ws:
            await expect(ws, "conversation.created")
            wrong = {"type": "realtime", "earshot": {"wake_word": "hal"}}
            await ws.send_json({"type": "session.update", "session": wrong})
            error = (await expect(ws, "error"))[-1]["error"]
            assert error["param"] == "session.earshot.wake_word"
            assert "'hal' is not known; these are: computer, robot" in error["message"]

            earshot = {"wake_word": "computer"}
            session = await update(ws, earshot=earshot, include=["earshot.wake"])
            assert session["earshot"]["wake_word"] == "computer"
            [*_, asleep] = await expect(ws, "earshot.wake")
            assert asleep["wake"] == {"word": "computer", "phrase": "Computer", "is_awake": False}
            for run in ((2 * LEVEL_ONE, 400), (WORD_LEVEL, 20), (0, 200), (LEVEL_ONE, 400)):
                await ws.send_json({"type": "input_audio_buffer.append", "audio": pcm(run)})
            await ws.send_json({"type": "input_audio_buffer.append", "audio": pcm((0, 900))})
            told = await expect(ws, "response.done")
            assert [e["wake"]["is_awake"] for e in told if e["type"] == "earshot.wake"] == [True]
            [heard] = [e["transcript"] for e in told if e["type"].endswith("n.completed")]
            assert heard == "one"

    against(scene, setup)


def test_the_person_at_a_client_that_says_its_room_can_be_asked() -> None:
    setup = Setup()

    async def scene(server: Server) -> None:
        async with server.client.ws_connect("/v1/realtime?model=default") as ws:
            session = await update(ws, earshot={"area": "Kitchen"})
            assert session["earshot"]["area"] == "Kitchen"
            [there] = setup.world.conversations.sessions_by_area()["Kitchen"]
            async with asyncio.TaskGroup() as tasks:
                asked = tasks.create_task(there.ask("Pizza, or pasta?"))
                await expect(ws, "response.done")
                for run in ((0, 200), (LEVEL_ONE, 400), (0, 900)):
                    await ws.send_json({"type": "input_audio_buffer.append", "audio": pcm(run)})
            assert asked.result() == "one"
            assert setup.world.llm.asked == []
            await update(ws, earshot={"area": None})
            assert setup.world.conversations.sessions_by_area() == {}

    against(scene, setup)


def test_push_to_talk_with_all_audio_in_one_event() -> None:
    """Nothing of an upload may be lost, however much comes at once and however soon the commit."""

    async def scene(server: Server) -> None:
        async with server.client.ws_connect("/v1/realtime") as ws:
            await update(ws, audio={"input": {"turn_detection": None}})
            speech = pcm((0, 4000), (LEVEL_ONE, 600), (0, 8000), (2000, 600), (0, 3000))
            await ws.send_json({"type": "input_audio_buffer.append", "audio": speech})
            await ws.send_json({"type": "input_audio_buffer.commit"})
            await ws.send_json({"type": "response.create"})
            events = await expect(ws, "response.done")
            words = [
                e["transcript"] for e in events if e["type"].endswith("transcription.completed")
            ]
            assert words == ["one two"]
            sound = b"".join(
                b64decode(e["delta"]) for e in events if e["type"] == "response.output_audio.delta"
            )
            assert len(sound) >= 2 * 24_000, "the scripted voice says a second or more"
            assert not any(e["type"].startswith("output_audio_buffer") for e in events)

    against(scene)


@pytest.mark.parametrize(("format_", "is_full"), [("audio/pcm", False), ("audio/pcmu", True)])
def test_the_longest_append_is_accepted(format_: str, is_full: bool) -> None:
    """The append has 15 MiB of speech. At 24 kHz all of it is held; of telephone audio (33 minutes)
    only the beginning, and the rest is refused as an error of the client."""

    async def scene(server: Server) -> None:
        async with server.client.ws_connect("/v1/realtime") as ws:
            format_json = {"type": format_}
            await update(ws, audio={"input": {"turn_detection": None, "format": format_json}})
            loud = b"\xe8\x03" if format_ == "audio/pcm" else b"\x80\x00"
            sound = b64encode(loud * (MAX_APPEND_BYTES // 2)).decode()
            assert len(sound) == 20_971_520
            append = {"type": "input_audio_buffer.append", "event_id": "c7", "audio": sound}
            await ws.send_json(append)
            await ws.send_json({"type": "input_audio_buffer.commit", "event_id": "c8"})
            events = await expect(ws, "input_audio_buffer.committed")
            refused = [e["error"] for e in events if e["type"] == "error"]
            told = [(e["type"], e["code"], e["event_id"]) for e in refused]
            full = ("invalid_request_error", "input_audio_buffer_full", "c7")
            assert told == ([full] if is_full else [])

    against(scene)


def test_a_spoken_turn_is_answered_automatically() -> None:
    async def scene(server: Server) -> None:
        async with server.client.ws_connect("/v1/realtime") as ws:
            speech = pcm((0, 300), (LEVEL_ONE, 600), (0, 1000))
            await ws.send_json({"type": "input_audio_buffer.append", "audio": speech})
            events = await expect(ws, "response.done")
            types = [e["type"] for e in events]
            order = [
                "session.created",
                "input_audio_buffer.speech_started",
                "input_audio_buffer.speech_stopped",
                "input_audio_buffer.committed",
                "conversation.item.added",
                "conversation.item.done",
                "response.created",
                "response.output_audio.done",
                "response.done",
            ]
            assert [types.index(kind) for kind in order] == sorted(map(types.index, order))

    against(scene)


def test_the_audio_of_an_item_is_answered_on_request() -> None:
    async def scene(server: Server) -> None:
        async with server.client.ws_connect("/v1/realtime") as ws:
            await update(ws, output_modalities=["text"])
            content = [{"type": "input_audio", "audio": pcm((LEVEL_ONE, 600))}]
            item = {"type": "message", "id": "item_1", "role": "user", "content": content}
            await ws.send_json({"type": "conversation.item.create", "item": item})
            await ws.send_json({"type": "response.create"})
            events = await expect(ws, "response.done")
            [heard] = [e for e in events if e["type"].endswith("transcription.completed")]
            assert (heard["item_id"], heard["transcript"]) == ("item_1", "one")
            [said] = [e for e in events if e["type"] == "response.output_text.done"]
            assert said["text"].strip() == "you said one."

    against(scene)


def test_a_transcription_session_creates_no_responses() -> None:
    async def scene(server: Server) -> None:
        async with server.client.ws_connect("/v1/realtime?intent=transcription") as ws:
            [created] = await expect(ws, "session.created")
            assert created["session"]["type"] == "transcription"
            speech = pcm((0, 300), (LEVEL_ONE, 600), (0, 1000))
            await ws.send_json({"type": "input_audio_buffer.append", "audio": speech})
            await expect(ws, "conversation.item.input_audio_transcription.completed")
            await ws.send_json({"type": "response.create"})
            events = await expect(ws, "error")
            assert not any(e["type"].startswith("response.") for e in events)

    against(scene)


def test_a_conversation_continues_in_the_next_connection() -> None:
    async def scene(server: Server) -> None:
        path = "/v1/realtime?conversation_id=conv_mine"
        for turn in (1, 2):
            async with server.client.ws_connect(path) as ws:
                [created] = await expect(ws, "session.created")
                assert created["session"]["earshot"] == {"conversation_id": "conv_mine"}
                await update(ws, output_modalities=["text"])
                await ws.send_json(
                    {
                        "type": "conversation.item.create",
                        "item": {
                            "type": "message",
                            "role": "user",
                            "content": [{"type": "input_text", "text": f"turn {turn}"}],
                        },
                    }
                )
                await ws.send_json({"type": "response.create"})
                await expect(ws, "response.done")
        assert len(server.world.llm.asked[-1]) >= 3, "the first turn is remembered"

    against(scene)


def test_a_conversation_keeps_its_profile_until_it_is_reset() -> None:
    wish = {
        "instructions": "Be brief.",
        "audio": {
            "input": {"transcription": {"language": "de"}},
            "output": {"voice": "tief", "speed": 1.25},
        },
    }
    back = {
        "instructions": "",
        "audio": {
            "input": {"transcription": {"language": None}},
            "output": {"voice": None, "speed": None},
        },
    }

    def profile(session: dict[str, Any]) -> list[Any]:
        audio = session["audio"]
        language = audio["input"]["transcription"]["language"]
        output = audio["output"]
        return [session["instructions"], language, output["voice"], output["speed"]]

    async def scene(server: Server) -> None:
        path, seen = "/v1/realtime?conversation_id=conv_mine", []
        for sent in (wish, back, {}):
            async with server.client.ws_connect(path) as ws:
                [created] = await expect(ws, "session.created")
                seen.append(profile(created["session"]))
                await update(ws, **sent)
        async with server.client.ws_connect("/v1/realtime") as ws:
            [created] = await expect(ws, "session.created")
            seen.append(profile(created["session"]))
        fresh = ["", None, "default", 1]
        assert seen == [fresh, ["Be brief.", "de", "tief", 1.25], fresh, fresh]

    against(scene)


@pytest.mark.parametrize(
    ("offered", "answered"),
    [((), None), (("realtime", "openai-insecure-api-key.ek_1"), "realtime")],
)
def test_only_the_subprotocol_without_a_key_is_accepted(
    offered: tuple[str, ...], answered: str | None
) -> None:
    async def scene(server: Server) -> None:
        async with server.client.ws_connect("/v1/realtime", protocols=offered) as ws:
            assert ws.protocol == answered

    against(scene)


@pytest.mark.parametrize(
    ("query", "status"),
    [("model=nonsense", 404), ("call_id=rtc_1", 404), ("conversation_id=", 400)],
)
def test_an_invalid_query_is_refused_before_the_upgrade(query: str, status: int) -> None:
    async def scene(server: Server) -> None:
        with pytest.raises(WSServerHandshakeError) as caught:
            await server.client.ws_connect(f"/v1/realtime?{query}")
        assert caught.value.status == status
        assert server.sessions.count == 0

    against(scene)


def test_a_full_server_refuses_the_upgrade() -> None:
    async def scene(server: Server) -> None:
        async with server.client.ws_connect("/v1/realtime") as ws:
            await expect(ws, "session.created")
            with pytest.raises(WSServerHandshakeError) as caught:
                await server.client.ws_connect("/v1/realtime")
            assert caught.value.status == 503

    against(scene, Setup(max_sessions=1))


def test_a_plain_get_is_refused() -> None:
    async def scene(server: Server) -> None:
        response = await server.client.get("/v1/realtime")
        assert response.status == 400
        assert (await error_of(response))["code"] == "websocket_expected"

    against(scene)


def test_invalid_events_leave_the_socket_open() -> None:
    async def scene(server: Server) -> None:
        async with server.client.ws_connect("/v1/realtime") as ws:
            await expect(ws, "conversation.created")
            long = json.dumps({"type": "session.update", "session": {"x": "y" * 1_000_000}})
            for text in ("{", '{"type":"x"}', long):
                await ws.send_str(text)
            await ws.send_bytes(b"\0\0")
            await ws.send_json({"type": "input_audio_buffer.append", "audio": "AAAA"})
            await ws.send_json({"type": "input_audio_buffer.commit"})
            german = {"input": {"transcription": {"language": "xx"}}}
            session = {"type": "realtime", "audio": german}
            await ws.send_json({"type": "session.update", "session": session})
            errors = [await ws.receive_json() for _ in range(7)]
            assert [e["error"]["code"] for e in errors] == [
                "invalid_json",
                "unknown_event_type",
                "event_too_large",
                "invalid_json",
                "invalid_audio",
                "input_audio_buffer_commit_empty",
                "unsupported_language",
            ]
            assert await update(ws, instructions="still here")

    against(scene)


def test_a_message_above_the_limit_gets_an_error_before_the_end() -> None:
    """It is the only invalid event that ends a session, because the transport cannot skip it."""

    async def scene(server: Server) -> None:
        async with server.client.ws_connect("/v1/realtime") as ws:
            await expect(ws, "conversation.created")
            await ws.send_str("x" * (MAX_EVENT_BYTES + 1))
            error = await ws.receive_json()
            assert error["error"]["code"] == "event_too_large"
            assert error["error"]["type"] == "invalid_request_error"
            assert str(MAX_EVENT_BYTES) in error["error"]["message"]
            assert (await ws.receive()).type is WSMsgType.CLOSE
            assert ws.close_code == WSCloseCode.MESSAGE_TOO_BIG
        await server.all_left()

    against(scene)


def test_draining_closes_with_a_reason() -> None:
    async def scene(server: Server) -> None:
        async with server.client.ws_connect("/v1/realtime") as ws:
            await expect(ws, "conversation.created")
            await server.sessions.drain(1)
            message = await ws.receive()
            assert message.type is WSMsgType.CLOSE
            assert (ws.close_code, message.extra) == (WSCloseCode.SERVICE_RESTART, "going away")

    against(scene)


def test_an_idle_client_gets_an_error_and_is_closed() -> None:
    async def scene(server: Server) -> None:
        async with server.client.ws_connect("/v1/realtime") as ws:
            events = await expect(ws, "error")
            assert events[-1]["error"]["code"] == "session_idle"
            assert (await ws.receive()).type is WSMsgType.CLOSE
            assert ws.close_code == WSCloseCode.OK

    against(scene, Setup(settings=RealtimeSettings(idle_timeout_s=0.05)))


def test_a_vanished_client_leaves_no_session() -> None:
    async def scene(server: Server) -> None:
        ws = await server.client.ws_connect("/v1/realtime")
        await expect(ws, "conversation.created")
        assert server.sessions.count == 1
        connection = ws._response.connection
        assert connection is not None
        assert connection.transport is not None
        connection.transport.abort()
        await server.all_left()

    against(scene)
