"""Two gateways behind one port: calls on both, requests that arrive at the other one, the sudden
end of a gateway, and the replacement of all."""

import asyncio
import signal
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiohttp import ClientSession, WSMsgType, WSServerHandshakeError

from bench.client.webrtc import WebRtcClient
from core.conversation.ids import gateway_of
from tests.server.gateways.two_gateways import (
    SPOKEN_HERE,
    TWO_GATEWAYS,
    client,
    gateways,
    sessions,
    until,
)
from tests.server.process import Running, serving
from tests.signaling.whip.client import Publisher, beeps, publishing

pytestmark = pytest.mark.real

DEADLINE_S = 240
SOUND = beeps(600, 500_000)


def number(path: str) -> int:
    """Returns the number of the gateway that the path of a call names."""
    found = gateway_of(path.rpartition("/")[2])
    assert found is not None
    return found


async def statuses(http: ClientSession, path: str) -> set[int]:
    """Returns the statuses of requests that arrive at all gateways."""
    found = set()
    for _ in range(6):
        async with http.get(path) as answer:
            found.add(answer.status)
    return found


async def check_sideband(http: ClientSession) -> None:
    """Opens a call, and its events from connections that arrive at both gateways."""
    caller = WebRtcClient(lambda *_: None)
    offer = await caller.peer.offer()
    async with http.post(
        "/v1/realtime/calls", data=offer, headers={"Content-Type": "application/sdp"}
    ) as answer:
        assert answer.status == 201
        call = answer.headers["Location"].rpartition("/")[2]
    for _ in range(2):
        async with http.ws_connect(f"/v1/realtime?call_id={call}") as sideband:
            await sideband.send_json({"type": "earshot.unknown", "event_id": "mine"})
            async for message in sideband:
                assert message.type is WSMsgType.TEXT
                if message.json()["type"] == "error":
                    break
    async with http.post(f"/v1/realtime/calls/{call}/hangup") as answer:
        assert answer.status == 200
    await caller.peer.close()


async def check_live_sideband(http: ClientSession) -> None:
    """Attaches to a GPT-Live session from connections that arrive at both gateways."""
    async with http.ws_connect("/v1/live/sessions") as client:
        await client.send_json({"type": "session.start", "session": {"model": "gpt-live-1"}})
        session_id = (await client.receive_json())["session"]["id"]
        for _ in range(2):
            async with http.ws_connect(f"/v1/live/sessions/{session_id}/attach") as sideband:
                await sideband.send_json({"type": "session.input_audio.mute", "event_id": "mine"})
                for socket in (sideband, client):
                    assert (await socket.receive_json())["client_event_id"] == "mine"


async def check_conversation(http: ClientSession) -> None:
    """Opens two sessions in one conversation: both are at the same gateway."""
    before = await sessions(http)
    path = "/v1/realtime?conversation_id=kitchen"
    async with http.ws_connect(path) as one, http.ws_connect(path) as two:
        for socket in (one, two):
            assert (await socket.receive_json())["type"] == "session.created"
        grown = {name: count - before[name] for name, count in (await sessions(http)).items()}
    assert sorted(grown.values()) == [0, 2]


async def check_settings(http: ClientSession) -> None:
    """Saves a setting that needs no restart: sessions at both gateways begin with it."""
    async with http.get("/v1/settings") as answer:
        etag = (await answer.json())["etag"]
    saved = {"etag": etag, "changes": {"assistant.instructions": "Be short."}}
    async with http.post("/v1/settings", json=saved) as answer:
        assert answer.status == 200

    async def hold_at_both() -> bool:
        found = set()
        for _ in range(2):
            async with http.ws_connect("/v1/realtime") as socket:
                found.add((await socket.receive_json())["session"]["instructions"])
        return found == {"Be short."}

    await until(hold_at_both)


async def check_limit(http: ClientSession) -> None:
    """Opens sessions at both gateways until there are 8, which all together may have."""

    async def has_only_the_calls() -> bool:
        return sum((await sessions(http)).values()) == 2

    await until(has_only_the_calls)
    async with AsyncExitStack() as stack:
        for _ in range(6):
            await stack.enter_async_context(http.ws_connect("/v1/realtime"))
        assert sum((await sessions(http)).values()) == 8
        for _ in range(2):
            with pytest.raises(WSServerHandshakeError) as refusal:
                await http.ws_connect("/v1/realtime")
            assert refusal.value.status == 503


async def end_from_everywhere(http: ClientSession, call: Publisher) -> None:
    async with http.delete(call.location) as answer:
        assert answer.status == 200
    assert await statuses(http, call.location) == {404}


async def check_kill(server: Running, http: ClientSession, lost: str, kept: str) -> None:
    """Kills the gateway of one call: the other call goes on, and a new gateway comes."""
    gateways(server)[number(lost) - 1].kill()
    async with http.get(kept) as answer:
        assert answer.status == 204
    await until(lambda: _has(sessions(http), "3"))
    assert await statuses(http, kept) == {204}
    assert await statuses(http, lost) == {404}


async def _has(counts: Awaitable[dict[str, float]], gateway: str) -> bool:
    return gateway in await counts


async def check_rolling(server: Running, http: ClientSession, call: Publisher) -> None:
    """Replaces all gateways under a stream of requests: none fails, and the call stays until it
    ends itself."""
    failed: list[int] = []

    async def keep_asking() -> None:
        while True:
            async with http.post("/v1/realtime/client_secrets", json={}) as answer:
                if answer.status != 200:
                    failed.append(answer.status)
            await asyncio.sleep(0.1)

    asking = asyncio.create_task(keep_asking())
    server.process.send_signal(signal.SIGHUP)
    newest = {"4", "5"}
    await until(lambda: _is_retiring(server, newest, http))
    assert await statuses(http, call.location) == {204}
    await end_from_everywhere(http, call)
    await until(lambda: _is_said(server, "all gateways were replaced"))
    assert set(await sessions(http)) == newest
    asking.cancel()
    assert not failed


async def _is_retiring(server: Running, newest: set[str], http: ClientSession) -> bool:
    return newest <= set(await sessions(http)) and len(gateways(server)) == 3


async def _is_said(server: Running, text: str) -> bool:
    return any(text in line for line in server.said)


def test_two_gateways_serve_one_port(tmp_path: Path) -> None:
    async def scene(server: Running) -> None:
        async with (
            asyncio.timeout(DEADLINE_S),
            client(server) as http,
            publishing(http, SOUND) as one,
            publishing(http, SOUND) as two,
        ):
            assert {number(one.location), number(two.location)} == {1, 2}
            assert await statuses(http, one.location) == {204}
            await check_sideband(http)
            await check_live_sideband(http)
            await check_conversation(http)
            await check_settings(http)
            await check_limit(http)
            # The home gateway, which is replaced first, is the one that is lost.
            lost, kept = sorted((one, two), key=lambda call: number(call.location))
            await check_kill(server, http, lost.location, kept.location)
            await check_rolling(server, http, kept)

    with serving(tmp_path, settings=TWO_GATEWAYS, recogniser=SPOKEN_HERE) as server:
        asyncio.run(scene(server))
        assert server.stop() == 0
        assert not list((tmp_path / "earshot").glob("gateways-*"))
