"""Calls with a real peer, from the offer to the end."""

import asyncio

import pytest

from media.webrtc.peer import CloseReason, Peer, PeerSettings
from signaling.realtime.door import RealtimeSettings
from signaling.realtime.session.settings import SessionConfiguration
from signaling.realtime.transports.webrtc import MAX_UNREAD_EVENTS
from tests.media.paths import on_both_paths
from tests.server.http.harness import error_of
from tests.signaling.realtime.fakes import CountingHome
from tests.signaling.realtime.servers import Server, Setup, against
from tests.signaling.realtime.webrtc_client import CALLS, SDP, Caller, form, talking

pytestmark = pytest.mark.live

LEVEL_ONE = 1000
"The level that the scripted VAD takes for speech."


@on_both_paths
def test_a_written_question_is_answered_by_voice(path: PeerSettings) -> None:
    async def scene(server: Server) -> None:
        include = ["earshot.turn", "earshot.home"]
        session = {"type": "realtime", "instructions": "Be brief.", "include": include}
        async with talking(server, session) as caller:
            content = [{"type": "input_text", "text": "hello"}]
            item = {"type": "message", "role": "user", "content": content}
            caller.send(type="conversation.item.create", item=item)
            caller.send(type="response.create")
            events = await caller.expect("earshot.turn")
            types = [event["type"] for event in events]
            assert "response.output_audio.delta" not in types
            assert types.index("response.created") < types.index("output_audio_buffer.started")
            assert "output_audio_buffer.stopped" in types, "the turn is told when it was heard"
            assert events[0]["type"] == "earshot.home"
            await caller.heard.wait()
        await server.all_left()

    against(scene, Setup(settings=RealtimeSettings(peer=path), home=CountingHome()))


@on_both_paths
def test_speech_on_the_track_starts_a_turn(path: PeerSettings) -> None:
    async def scene(server: Server) -> None:
        async with talking(server) as caller:
            caller.level = LEVEL_ONE
            await caller.expect("input_audio_buffer.speech_started")
            caller.level = 0
            await caller.expect("input_audio_buffer.committed")
        await server.all_left()

    against(scene, Setup(settings=RealtimeSettings(peer=path)))


@on_both_paths
def test_hanging_up_frees_everything_before_the_response(path: PeerSettings) -> None:
    async def scene(server: Server) -> None:
        async with talking(server) as caller:
            response = await server.client.post(f"{CALLS}/{caller.call_id}/hangup")
            assert response.status == 200
            assert (server.sessions.count, server.door.calls.count) == (0, 0)
            again = await server.client.post(f"{CALLS}/{caller.call_id}/hangup")
            assert again.status == 404
            assert (await error_of(again))["code"] == "call_not_found"

    against(scene, Setup(settings=RealtimeSettings(peer=path)))


@pytest.mark.parametrize("suffix", ["", "/hangup"])
def test_an_unknown_call_is_not_found(suffix: str) -> None:
    async def scene(server: Server) -> None:
        response = await server.client.post(f"{CALLS}/rtc_unknown{suffix}", data="v=0")
        assert response.status == 404
        assert (await error_of(response))["code"] == "call_not_found"

    against(scene)


def test_a_second_offer_is_refused() -> None:
    async def scene(server: Server) -> None:
        async with talking(server) as caller:
            path = f"{CALLS}/{caller.call_id}"
            live = await server.client.post(path, data="v=0", headers=SDP)
            assert live.status == 409
            assert (await error_of(live))["code"] == "call_already_answered"
            await server.client.post(f"{path}/hangup")
            closed = await server.client.post(path, data="v=0", headers=SDP)
            assert closed.status == 404
            assert (await error_of(closed))["code"] == "call_not_found"

    against(scene)


def test_a_full_server_refuses_the_offer() -> None:
    async def scene(server: Server) -> None:
        async with talking(server):
            caller = Caller()
            offer = await caller.peer.offer()
            response = await server.client.post(CALLS, data=offer, headers=SDP)
            assert response.status == 503
            assert response.headers["Retry-After"]
            assert (await error_of(response))["code"] == "server_full"
            await caller.peer.close()

    against(scene, Setup(max_sessions=1))


@pytest.mark.parametrize("path", [CALLS, "/v1/realtime?model=gpt-realtime"])
def test_raw_sdp_is_an_offer(path: str) -> None:
    async def scene(server: Server) -> None:
        caller = Caller()
        response = await server.client.post(path, data=await caller.peer.offer(), headers=SDP)
        assert response.status == 201
        await caller.peer.accept(await response.text())
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(caller.peer.run())
            await caller.expect("session.created")
            caller.peer.stop()
        await server.all_left()

    against(scene)


def test_an_offer_whose_sender_left_is_given_up() -> None:
    async def scene(server: Server) -> None:
        caller = Caller()
        offer = await caller.peer.offer()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await server.door._start(offer, SessionConfiguration())
        await server.all_left()
        await caller.peer.close()

    against(scene)


@pytest.mark.parametrize("path", [CALLS, "/v1/realtime?model=gpt-realtime"])
def test_a_caller_that_hangs_up_before_the_answer_leaves_no_call(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow(peer: Peer, offer: str) -> str:
        seen.set()
        await asyncio.sleep(1)  # longer than a lost connection stays unnoticed
        return await answer(peer, offer)

    async def scene(server: Server) -> None:
        caller = Caller()
        offer = await caller.peer.offer()
        asking = asyncio.ensure_future(server.client.post(path, data=offer, headers=SDP))
        await seen.wait()
        asking.cancel()
        async with asyncio.timeout(5):  # less than the wait for a peer that never comes
            await server.all_left()
        await caller.peer.close()

    answer = Peer.answer
    seen = asyncio.Event()
    monkeypatch.setattr(Peer, "answer", slow)
    against(scene)


def test_an_unexpected_error_ends_only_its_call() -> None:
    setup = Setup()

    async def scene(server: Server) -> None:
        async with talking(server) as healthy, talking(server) as unlucky:
            broken = server.door.calls._calls[unlucky.call_id]
            assert broken._peer is not None
            broken._peer._fail(ZeroDivisionError())
            await unlucky.peer._closed.wait()
            healthy.send(type="session.update", session={"type": "realtime"})
            await healthy.expect("session.updated")
        await server.all_left()

    against(scene, setup)
    [bug] = setup.bugs
    assert bug.subgroup(ZeroDivisionError) is not None


def test_an_idle_call_ends_with_an_error() -> None:
    async def scene(server: Server) -> None:
        caller = Caller()
        await caller.call(server)
        reason = await caller.peer.run()
        assert reason is CloseReason.REMOTE_CLOSED
        events = await caller.expect("error")
        assert events[-1]["error"]["code"] == "session_idle"
        await server.all_left()

    against(scene, Setup(settings=RealtimeSettings(call_idle_timeout_s=0.1)))


def test_draining_ends_calls() -> None:
    async def scene(server: Server) -> None:
        async with talking(server):
            await server.sessions.drain(1)
            assert server.sessions.count == 0
            caller = Caller()
            offer = await caller.peer.offer()
            response = await server.client.post(CALLS, data=offer, headers=SDP)
            assert (await error_of(response))["code"] == "draining"
            await caller.peer.close()

    against(scene)


def test_invalid_events_leave_the_call_alive() -> None:
    async def scene(server: Server) -> None:
        async with talking(server) as caller:
            caller.peer.send("{")
            caller.send(type="input_audio_buffer.append", audio="AAAA")
            caller.send(type="response.cancel", event_id="mine")
            errors = [(await caller.expect("error"))[-1]["error"] for _ in range(3)]
            assert [error["code"] for error in errors] == [
                "invalid_json",
                "unsupported_event",
                "response_cancel_not_active",
            ]
            assert errors[-1]["event_id"] == "mine"
            caller.send(type="session.update", session={"type": "realtime"})
            await caller.expect("session.updated")

    against(scene)


def test_a_session_too_large_for_the_channel_is_refused_and_the_call_goes_on() -> None:
    tools = [
        {"type": "function", "name": f"tool_{n}", "description": "x" * 1500, "parameters": {}}
        for n in range(100)
    ]

    async def scene(server: Server) -> None:
        async with talking(server) as caller:
            long = {"type": "realtime", "instructions": "x" * 150_000}
            caller.send(type="session.update", session=long)
            await caller.expect("session.updated")
            caller.send(
                type="session.update", event_id="c2", session={"type": "realtime", "tools": tools}
            )
            error = (await caller.expect("error"))[-1]["error"]
            assert (error["type"], error["code"], error["param"], error["event_id"]) == (
                "invalid_request_error",
                "event_too_large",
                "session",
                "c2",
            )
            caller.send(type="session.update", session={"type": "realtime"})
            session = (await caller.expect("session.updated"))[-1]["session"]
            assert session["tools"] == []
            assert len(session["instructions"]) == 150_000

    against(scene)


def test_an_offer_whose_session_does_not_fit_its_channel_is_refused() -> None:
    async def scene(server: Server) -> None:
        caller = Caller()
        offer = (await caller.peer.offer()).replace("size:262144", "size:1000")
        response = await server.client.post(CALLS, data=form(offer, {"type": "realtime"}))
        assert response.status == 400
        assert (await error_of(response))["code"] == "event_too_large"
        await server.all_left()
        await caller.peer.close()

    against(scene)


def test_a_client_that_sends_too_fast_is_disconnected_with_the_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(server: Server) -> None:
        async with talking(server) as caller:
            call = server.door.calls._calls[caller.call_id]
            for _ in range(MAX_UNREAD_EVENTS + 1):
                call._unread.put("{}")
            errors = (await caller.expect("error"))[-1:]
            while errors[-1]["error"]["code"] != "too_many_events":
                errors += (await caller.expect("error"))[-1:]
            assert errors[-1]["error"]["type"] == "rate_limit_error"
            assert str(MAX_UNREAD_EVENTS) in errors[-1]["error"]["message"]
            await caller.peer._closed.wait()
            assert caller.peer.reason is CloseReason.REMOTE_CLOSED
        await server.all_left()

    with caplog.at_level("INFO", "signaling"):
        against(scene)
    assert "sent events faster than the server can read them" in caplog.text
    assert "ended: lagging" in caplog.text
