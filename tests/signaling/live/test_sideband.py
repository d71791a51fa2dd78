"""A sideband of GPT-Live is a second client of a session: it gets all events and its sound, may
act, and can leave without effect on the session."""

from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from aiohttp import WSMsgType, WSServerHandshakeError
from openai import AsyncOpenAI
from openai.types.live.connect_server_event import ConnectServerEvent
from pydantic import TypeAdapter

from core.access.named_key import CALLER_KEY, NamedKey
from signaling.realtime.client_secrets import ClientSecretRequest, ClientSecretStore
from signaling.realtime.transports.sideband import MAX_SIDEBANDS
from tests.pipeline.fakes import LoopClock, World
from tests.signaling.live.clients import (
    LEVEL_ONE,
    LEVEL_TWO,
    PATH,
    DelegatingLlm,
    LiveClient,
    calling,
    client_of,
    sound_s,
)
from tests.signaling.realtime.servers import Server, Setup, against

pytestmark = pytest.mark.live

SIDEBAND: TypeAdapter[Any] = TypeAdapter(ConnectServerEvent)
"The official client's types of events that a sideband connection gets."

TOOL = {"type": "function", "name": "lamp", "parameters": {"type": "object"}}
RESPONSES = {"type": "responses", "responses": {"model": "gpt-5.5", "tools": [TOOL]}}


@asynccontextmanager
async def attached(server: Server, session_id: str) -> AsyncIterator[LiveClient]:
    async with server.client.ws_connect(f"{PATH}/{session_id}/attach") as ws:
        yield LiveClient(ws, SIDEBAND)


async def refusal(server: Server, session_id: str, **options: Any) -> int:
    """Returns the status with which an attempt to attach is refused."""
    with pytest.raises(WSServerHandshakeError) as caught:
        await server.client.ws_connect(f"{PATH}/{session_id}/attach", **options)
    return caught.value.status


def test_a_sideband_of_a_call_follows_it_and_runs_its_tool() -> None:
    setup = Setup(world=World(llm=DelegatingLlm("lamp")))

    async def scene(server: Server) -> None:
        async with (
            calling(server, delegation=RESPONSES) as caller,
            attached(server, caller.call_id) as backend,
        ):
            item = {"type": "message", "role": "user", "content": "two"}
            await backend.send("response.item.create", item=item)
            await backend.send("response.create", event_id="b")
            nested: list[Any] = []
            while not nested or nested[-1]["type"] != "response.completed":
                nested.append((await backend.expect("response.event"))[-1]["event"])
            [call] = [e["item"] for e in nested if e["type"] == "response.output_item.done"]
            result = {"type": "function_call_output", "call_id": call["call_id"]}
            await backend.send("response.item.create", item={**result, "output": "on"})
            await backend.send("response.create")
            told = await backend.expect("session.output_transcript.delta")
            assert told[-1]["delta"] == "it says on."
            [*_, sound] = await backend.expect("session.output_audio.delta")
            assert sound["end_ms"] > sound["start_ms"] >= 0
            own = await caller.expect("session.output_transcript.delta")
            assert own[-1] == told[-1], "both ends see the same events"
            assert not [e for e in own if e["type"].startswith(("session.output_audio", "er"))]
            await caller.heard.wait()
            await backend.send("session.close")
            for seen in (
                await backend.expect("session.closed"),
                await caller.expect("session.closed"),
            ):
                assert seen[-1]["reason"] == "close_requested"
            assert (await backend.ws.receive()).type is WSMsgType.CLOSE
            assert backend.ws.close_code == 1000

    against(scene, setup)


def test_a_sideband_of_a_websocket_hears_both_and_answers_a_delegation() -> None:
    setup = Setup(world=World(llm=DelegatingLlm()))

    async def scene(server: Server) -> None:
        async with client_of(server) as client:
            wide = {"type": "audio/pcm", "rate": 16000}
            session = await client.start(audio={"format": wide})
            async with attached(server, session["id"]) as backend:
                await client.send("session.input_audio.mute")
                await backend.expect("session.input_audio.muted")
                await client.send("session.input_audio.unmute")
                await client.say((0, 200), (LEVEL_TWO, 500), (0, 900))
                seen = await backend.expect("session.delegation.created")
                heard = [e["audio"] for e in seen if e["type"] == "session.input_audio.append"]
                assert np.abs(np.frombuffer(b64decode("".join(heard)), "<i2")).max() > 1000
                delegation_id = seen[-1]["delegation"]["id"]
                await backend.send(
                    "session.commentary.append", content="It rains", delegation_id=delegation_id
                )
                while sound_s(backend.got) < 0.3:
                    await backend.expect("session.output_audio.delta")
                assert backend.words("output_transcript") == "it says It rains."
            await client.send("session.input_audio.mute")
            await client.expect("session.input_audio.muted")  # the session goes on

    against(scene, setup)


def test_the_official_client_attaches() -> None:
    async def scene(server: Server) -> None:
        http = f"{server.client._base_url}/v1"
        async with client_of(server) as client:
            session_id = (await client.start())["id"]
            stock = AsyncOpenAI(
                api_key="key", base_url=http, websocket_base_url=http.replace("http", "ws", 1)
            )
            async with stock, stock.live.sideband.connect(session_id=session_id) as sideband:
                await sideband.session.commentary.append(content="hello", delegation_id=None)
                async for event in sideband:
                    if event.type == "session.output_transcript.delta":
                        break
                await sideband.session.close()
                async for event in sideband:
                    if event.type == "session.closed":
                        assert event.reason == "close_requested"
                        break
            await client.expect("session.closed")

    against(scene)


def test_what_a_sideband_may_not_do_is_an_error_for_it_alone() -> None:
    async def scene(server: Server) -> None:
        async with client_of(server) as client:
            session_id = (await client.start())["id"]
            async with attached(server, session_id) as backend:
                await backend.send("session.start", session={"model": "gpt-live-1"})
                await backend.send("session.input_audio.append", event_id="a", audio="AAAA")
                await backend.send("session.update", session={"delegation": RESPONSES})
                await backend.ws.send_bytes(b"\0")
                errors = [(await backend.expect("error"))[-1]["error"] for _ in range(4)]
                assert [error["code"] for error in errors] == [
                    "session_already_started",
                    "unsupported_event",
                    "cannot_update_delegation",
                    "invalid_json",
                ]
                assert errors[1]["client_event_id"] == "a"
            await client.send("session.close")
            told = await client.expect("session.closed")
            assert not [event for event in told if event["type"] == "error"]

    against(scene)


def test_a_sideband_learns_how_the_client_left() -> None:
    async def scene(server: Server) -> None:
        async with client_of(server) as client:
            session_id = (await client.start())["id"]
            async with attached(server, session_id) as backend:
                await client.ws.close()
                closed = (await backend.expect("session.closed"))[-1]
                assert closed["reason"] == "remote_hangup"
        async with calling(server) as caller, attached(server, caller.call_id) as backend:
            hung_up = await server.client.post(f"{PATH}/{caller.call_id}/hangup")
            assert hung_up.status == 200
            closed = (await backend.expect("session.closed"))[-1]
            assert closed["reason"] == "close_requested"
        assert await refusal(server, session_id) == 404

    against(scene)


def test_who_may_attach() -> None:
    store = ClientSecretStore(LoopClock())

    async def scene(server: Server) -> None:
        async with client_of(server) as client:
            session_id = (await client.start())["id"]
            assert await refusal(server, "sess_none") == 404
            secret, _ = store.mint(ClientSecretRequest())
            bearer = {"Authorization": f"Bearer {secret}"}
            assert await refusal(server, session_id, headers=bearer) == 403
            plain = await server.client.get(f"{PATH}/{session_id}/attach")
            assert plain.status == 400
            path = f"{PATH}/{session_id}/attach"
            several = [await server.client.ws_connect(path) for _ in range(MAX_SIDEBANDS)]
            assert await refusal(server, session_id) == 400
            await client.say((LEVEL_ONE, 200))
            for ws in several:
                event = await ws.receive_json()
                assert event["type"] == "session.input_audio.append"
                await ws.close()

    against(scene, Setup(secrets=store))


def test_another_keys_session_does_not_exist() -> None:
    async def scene(server: Server) -> None:
        async with client_of(server) as client:
            session_id = (await client.start())["id"]
            sockets = server.live.sockets
            assert sockets.find(session_id) is not None
            CALLER_KEY.set(NamedKey("key_2", "guest", ("talk",)))
            assert sockets.find(session_id) is None

    against(scene)
