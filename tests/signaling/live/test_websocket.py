"""GPT-Live over a WebSocket with real sessions: whole turns, delegation, refusals and ends."""

import asyncio
from typing import Any

import pytest
from aiohttp import WSMsgType
from openai import AsyncOpenAI

from signaling.live.client_events import MAX_APPEND_CHARS
from signaling.live.connection import USAGE_EVERY_S
from signaling.live.websocket import START_TIMEOUT_S
from signaling.realtime.client_secrets import ClientSecretRequest, ClientSecretStore
from signaling.realtime.door import RealtimeSettings
from signaling.realtime.session.schema import TranscriptionSession
from tests.pipeline.fakes import LoopClock, World
from tests.signaling.live.clients import (
    LEVEL_ONE,
    LEVEL_TWO,
    PATH,
    DelegatingLlm,
    LiveClient,
    client_of,
    pcm,
    sound_s,
)
from tests.signaling.realtime.servers import Server, Setup, against

pytestmark = pytest.mark.live

TOOL = {"type": "function", "name": "lamp", "parameters": {"type": "object"}}
THINKING = {"type": "session.thinking.append", "delegation_id": None}
UNKNOWN_INSTRUCTIONS = ("unknown_parameter", "session.instructions")
RESPONSES = {"type": "responses", "responses": {"model": "gpt-5.5", "tools": [TOOL]}}


async def ask(client: LiveClient, level: int) -> None:
    """Says a word, and is silent until the turn is over."""
    await client.say((0, 200), (level, 500), (0, 900))


def test_the_official_client_has_a_spoken_turn() -> None:
    async def scene(server: Server) -> None:
        http = f"{server.client._base_url}/v1"
        heard, said, sound = "", "", 0
        async with (
            AsyncOpenAI(
                api_key="key", base_url=http, websocket_base_url=http.replace("http", "ws", 1)
            ) as stock,
            stock.live.connect() as connection,
        ):
            await connection.session.start(
                session={
                    "model": "gpt-live-1",
                    "instructions": "Be brief.",
                    "audio": {
                        "format": {"type": "audio/pcm", "rate": 24000},
                        "output": {"voice": "marin"},
                    },
                    "delegation": {"type": "client"},
                },
                event_id="start",
            )
            async for event in connection:
                match event.type:
                    case "session.started":
                        assert event.client_event_id == "start"
                        assert event.session.id.startswith("sess_")
                        for run in ((0, 200), (LEVEL_ONE, 500), (0, 900)):
                            await connection.session.input_audio.append(audio=pcm(run))
                    case "session.input_transcript.delta":
                        heard += event.delta
                    case "session.output_transcript.delta":
                        said += event.delta
                    case "session.output_audio.delta":
                        sound += len(event.delta)
                        if sound > 48_000:
                            await connection.session.close()
                    case "session.closed":
                        assert event.reason == "close_requested"
                        break
                    case _:
                        assert event.type == "session.usage.updated", event
        assert (heard, said) == ("one", "you said one.")

    against(scene)


def test_a_task_is_delegated_to_the_application() -> None:
    setup = Setup(world=World(llm=(llm := DelegatingLlm())))

    async def scene(server: Server) -> None:
        async with client_of(server) as client:
            session = await client.start()
            assert session["delegation"] == {"type": "client"}
            await ask(client, LEVEL_TWO)
            created = (await client.expect("session.delegation.created"))[-1]["delegation"]
            assert created["target"] == "client"
            on_it = {"delegation_id": created["id"]}
            await client.send("session.thinking.append", content="They own a cat.", **on_it)
            await client.expect("session.thinking.appended")
            await client.send("session.commentary.append", content="It rains", **on_it)
            await client.expect("session.output_audio.delta")
            assert client.words("output_transcript") == "it says It rains."
            assert any("They own a cat." in message.text for message in llm.asked[-1])

    against(scene, setup)


def test_a_tool_of_a_responses_delegation_is_run_by_the_client() -> None:
    setup = Setup(world=World(llm=DelegatingLlm("lamp")))

    async def scene(server: Server) -> None:
        async with client_of(server) as client:
            await client.start(delegation=RESPONSES)
            await ask(client, LEVEL_TWO)
            told = await client.expect("response.event")
            [created] = [e for e in told if e["type"] == "session.delegation.created"]
            delegation_id = created["delegation"]["id"]
            assert created["delegation"]["target"] == "responses"
            nested = [told[-1]["event"]]
            while nested[-1]["type"] != "response.completed":
                [*_, last] = await client.expect("response.event")
                nested.append(last["event"])
                assert last["delegation_id"] == delegation_id
            assert [event["type"] for event in nested] == [
                "response.created",
                "response.output_item.done",
                "response.completed",
            ]
            call = nested[1]["item"]
            assert (call["name"], call["status"]) == ("lamp", "completed")
            result = {"type": "function_call_output", "call_id": call["call_id"], "output": "on"}
            await client.send("response.item.create", item=result)
            await client.send("response.create")
            [*_, begun] = await client.expect("response.event")
            assert (begun["event"]["type"], begun["delegation_id"]) == (
                "response.created",
                delegation_id,
            )
            await client.expect("session.output_audio.delta")
            assert client.words("output_transcript") == "it says on."

    against(scene, setup)


def test_sound_comes_as_fast_as_it_is_heard_and_stops_when_the_user_interrupts() -> None:
    async def scene(server: Server) -> None:
        loop = asyncio.get_running_loop()
        async with client_of(server) as client:
            await client.start()
            await ask(client, LEVEL_ONE)
            first = await client.expect("session.output_audio.delta")
            began = loop.time()
            while sound_s(client.got) < 0.5:
                await client.expect("session.output_audio.delta")
            assert loop.time() - began > 0.5 - 0.3, "the client cannot drop what it has"
            await client.say((LEVEL_TWO, 400), (0, 900))
            await client.send("session.input_audio.unmute")
            await client.expect("session.input_audio.unmuted")
            heard_s = sound_s(client.got)
            while "you said one two" not in client.words("output_transcript"):
                await client.expect("session.output_transcript.delta")
            assert first
            assert sound_s(client.got) - heard_s < 0.3, "the old answer went on"
            assert sound_s(client.got) < 1.0, "of an answer that takes a second"

    against(scene)


def test_a_muted_microphone_is_silent() -> None:
    async def scene(server: Server) -> None:
        async with client_of(server) as client:
            await client.start()
            await client.send("session.input_audio.mute", event_id="m")
            [muted] = await client.expect("session.input_audio.muted")
            assert muted["client_event_id"] == "m"
            await ask(client, LEVEL_TWO)
            await client.send("session.input_audio.unmute")
            await client.expect("session.input_audio.unmuted")
            await ask(client, LEVEL_ONE)
            await client.expect("session.output_audio.delta")
            assert client.words("input_transcript") == "one"

    against(scene)


def test_usage_is_told_and_the_session_closes() -> None:
    async def scene(server: Server) -> None:
        async with client_of(server) as client:
            started = await client.start()
            [usage] = await client.expect("session.usage.updated")
            assert usage["usage"] == {"seconds": USAGE_EVERY_S}
            await client.send("session.close")
            [closed] = await client.expect("session.closed")
            assert (closed["reason"], closed["usage"]) == ("close_requested", usage["usage"])
            assert closed["session"] == started
            assert (await client.ws.receive()).type is WSMsgType.CLOSE
            assert client.ws.close_code == 1000

    against(scene)


@pytest.mark.parametrize(
    ("session", "code", "param"),
    [
        ({"modle": "x"}, "unknown_parameter", "session.modle"),
        ({"store": True}, "invalid_value", "session.store"),
        ({"delegation": {"type": "decisions"}}, "invalid_value", "session.delegation.type"),
        (
            {"delegation": {"type": "responses"}},
            "missing_required_parameter",
            "session.delegation.responses",
        ),
        ({"audio": {"output": {"voice": "nobody"}}}, "voice_not_found", None),
        ({"audio": {"format": {"type": "audio/pcm", "rate": 8000}}}, "invalid_value", None),
    ],
)
def test_a_wrong_start_is_named_and_may_be_sent_again(
    session: Any, code: str, param: str | None
) -> None:
    async def scene(server: Server) -> None:
        async with client_of(server) as client:
            wrong = {"model": "gpt-live-1", **session}
            await client.send("session.start", event_id="w", session=wrong)
            error = (await client.expect("error"))[-1]["error"]
            assert (error["code"], error["client_event_id"]) == (code, "w")
            assert param is None or error["param"] == param
            assert server.sessions.count == 0
            await client.start()

    against(scene)


def test_events_out_of_order_are_refused() -> None:
    async def scene(server: Server) -> None:
        async with client_of(server) as client:
            codes = []
            for kind in ("session.close", "session.input_audio.commit"):
                await client.send(kind)
                codes.append((await client.expect("error"))[-1]["error"]["code"])
            await client.start()
            await client.send("session.start", session={"model": "gpt-live-1"})
            await client.send("response.create")
            await client.send("session.commentary.append", content="x", delegation_id="deleg_no")
            await client.send("session.commentary.append", content="x")
            await client.send("session.update", session={"delegation": RESPONSES})
            await client.ws.send_bytes(b"\0")
            codes += [(await client.expect("error"))[-1]["error"]["code"] for _ in range(6)]
            assert codes == [
                "session_not_started",
                "unknown_event_type",
                "session_already_started",
                "unsupported_event",
                "delegation_not_found",
                "missing_required_parameter",
                "cannot_update_delegation",
                "invalid_json",
            ]

    against(scene)


def test_a_client_that_starts_nothing_is_closed() -> None:
    async def scene(server: Server) -> None:
        began = asyncio.get_running_loop().time()
        async with server.client.ws_connect(PATH) as ws:
            assert (await ws.receive()).type is WSMsgType.CLOSE
            assert ws.close_code == 1008
        assert asyncio.get_running_loop().time() - began >= START_TIMEOUT_S

    against(scene)


def test_a_full_server_and_an_idle_session() -> None:
    setup = Setup(max_sessions=1, settings=RealtimeSettings(idle_timeout_s=5))

    async def scene(server: Server) -> None:
        async with client_of(server) as first, client_of(server) as second:
            await first.start()
            await second.send("session.start", session={"model": "gpt-live-1"})
            assert (await second.expect("error"))[-1]["error"]["code"] == "server_full"
            assert (await second.ws.receive()).type is WSMsgType.CLOSE
            assert second.ws.close_code == 1013
            closed = (await first.expect("session.closed"))[-1]
            assert closed["reason"] == "expired"
            assert [e["error"]["code"] for e in first.got if e["type"] == "error"] == [
                "session_idle"
            ]

    against(scene, setup)


def test_a_client_secret_opens_what_it_was_made_for() -> None:
    store = ClientSecretStore(LoopClock())
    setup = Setup(secrets=store)

    async def scene(server: Server) -> None:
        talk, _ = store.mint(ClientSecretRequest())
        listen, _ = store.mint(ClientSecretRequest(session=TranscriptionSession()))
        for token, expected in ((talk, "session.started"), (listen, "error")):
            bearer = {"Authorization": f"Bearer {token}"}
            async with server.client.ws_connect(PATH, headers=bearer) as ws:
                client = LiveClient(ws)
                await client.send("session.start", session={"model": "gpt-live-1"})
                [told] = await client.expect(expected)
                if expected == "error":
                    assert told["error"]["code"] == "cannot_update_type"

    against(scene, setup)


@pytest.mark.parametrize(
    ("event", "code", "param"),
    [
        ({"type": "session.update", "session": {"instructions": "x"}}, *UNKNOWN_INSTRUCTIONS),
        ({"type": "session.close", "reason": "x"}, "unknown_parameter", "reason"),
        ({**THINKING, "content": ""}, "invalid_value", "content"),
        ({**THINKING, "content": "x" * (MAX_APPEND_CHARS + 1)}, "invalid_value", "content"),
    ],
)
def test_a_wrong_event_is_named_and_changes_nothing(event: Any, code: str, param: str) -> None:
    async def scene(server: Server) -> None:
        async with client_of(server) as client:
            await client.start()
            await client.ws.send_json({**event, "event_id": "w"})
            error = (await client.expect("error"))[-1]["error"]
            assert (error["code"], error["param"], error["client_event_id"]) == (code, param, "w")
            longest = {**THINKING, "content": "x" * MAX_APPEND_CHARS}
            await client.ws.send_json(longest)
            await client.expect("session.thinking.appended")

    against(scene)


def test_an_unknown_event_is_answered_with_the_known_ones() -> None:
    async def scene(server: Server) -> None:
        async with client_of(server) as client:
            await client.start()
            await client.send("session.input_audio.commit")
            message = (await client.expect("error"))[-1]["error"]["message"]
            assert "session.thinking.append" in message
            assert "session.close" in message

    against(scene)
