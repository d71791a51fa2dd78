"""Calls with a real peer at the other end: the whole way in and out, and every bad offer."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from aiohttp import FormData

from core.audio import AudioFrame
from media.peer import CloseReason, Peer, PeerCallbacks, PeerSettings
from signaling.realtime.door import RealtimeSettings
from signaling.realtime.session import Terms
from tests.server.http import error_of
from tests.signaling.fakes import CountingHome
from tests.signaling.servers import Server, Setup, against

Event = dict[str, Any]
CALLS = "/v1/realtime/calls"
SDP = {"Content-Type": "application/sdp"}
LEVEL_ONE = 1000


@dataclass
class Caller:
    """A client with a tone for a voice: `level` is what it says now."""

    level: int = 0
    events: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    call_id: str = ""

    def __post_init__(self) -> None:
        self.peer = Peer(PeerCallbacks(self._speak, self._hear, self._note), PeerSettings())

    async def call(self, server: Server, session: Event | None = None) -> None:
        response = await server.client.post(CALLS, data=form(await self.peer.offer(), session))
        assert response.status == 201, await response.text()
        assert response.content_type == "application/sdp"
        assert response.headers["Access-Control-Expose-Headers"] == "Location"
        self.call_id = response.headers["Location"].removeprefix(f"{CALLS}/")
        assert self.call_id.startswith("rtc_")
        await self.peer.accept(await response.text())

    async def expect(self, kind: str) -> list[Event]:
        """Everything up to the first event of this type."""
        seen: list[Event] = []
        while not seen or seen[-1]["type"] != kind:
            seen.append(await self.events.get())
        return seen

    def send(self, **event: Any) -> None:
        self.peer.send(json.dumps(event))

    def _speak(self) -> AudioFrame:
        wave = self.level * np.sign(np.sin(np.arange(960) * 2 * np.pi * 300 / 48_000) + 1e-9)
        return AudioFrame(wave.astype(np.int16), 48_000, 0)

    def _hear(self, frame: AudioFrame) -> None:
        if np.abs(frame.pcm).max() > 2000:
            self.heard.set()

    def _note(self, text: str | bytes) -> None:
        assert isinstance(text, str)
        self.events.put_nowait(json.loads(text))


def form(sdp: str, session: Event | str | None = None) -> FormData:
    data = FormData()
    data.add_field("sdp", sdp, content_type="application/sdp")
    if session is not None:
        text = session if isinstance(session, str) else json.dumps(session)
        data.add_field("session", text, content_type="application/json")
    return data


@asynccontextmanager
async def talking(server: Server, session: Event | None = None) -> AsyncIterator[Caller]:
    """A connected caller, hung up afterwards."""
    caller = Caller()
    await caller.call(server, session)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(caller.peer.run())
        await caller.expect("session.created")
        yield caller
        caller.peer.stop()


def test_a_written_question_is_answered_by_voice() -> None:
    async def scene(server: Server) -> None:
        include = ["earshot.turn", "earshot.home"]
        session = {"type": "realtime", "instructions": "Be brief.", "include": include}
        async with talking(server, session) as caller:
            content = [{"type": "input_text", "text": "hello"}]
            item = {"type": "message", "role": "user", "content": content}
            caller.send(type="conversation.item.create", item=item)
            caller.send(type="response.create")
            events = await caller.expect("output_audio_buffer.stopped")
            types = [event["type"] for event in events]
            assert "response.output_audio.delta" not in types
            assert types.index("response.created") < types.index("output_audio_buffer.started")
            assert "earshot.turn" in types
            assert events[0]["type"] == "earshot.home"
            await caller.heard.wait()
        await server.all_left()

    against(scene, Setup(home=CountingHome()))


def test_speech_on_the_track_starts_a_turn() -> None:
    async def scene(server: Server) -> None:
        async with talking(server) as caller:
            caller.level = LEVEL_ONE
            await caller.expect("input_audio_buffer.speech_started")
            caller.level = 0
            await caller.expect("input_audio_buffer.committed")
        await server.all_left()

    against(scene)


def test_hanging_up_frees_everything_before_it_is_answered() -> None:
    async def scene(server: Server) -> None:
        async with talking(server) as caller:
            response = await server.client.post(f"{CALLS}/{caller.call_id}/hangup")
            assert response.status == 200
            assert (server.sessions.count, server.door.calls.count) == (0, 0)
            again = await server.client.post(f"{CALLS}/{caller.call_id}/hangup")
            assert again.status == 404
            assert (await error_of(again))["code"] == "call_not_found"

    against(scene)


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


Offer = Callable[[str], tuple[Any, dict[str, str]]]
"A good offer's SDP to the body and headers of a bad request."


def without_audio(sdp: str) -> str:
    head, *sections = sdp.split("m=")
    kept = [section for section in sections if not section.startswith("audio")]
    return "m=".join([head, *kept])


def wants(**fields: Any) -> Offer:
    return lambda sdp: (form(sdp, {"type": "realtime", **fields}), {})


def hears(**transcription: Any) -> Offer:
    return wants(audio={"input": {"transcription": transcription}})


BAD_OFFERS: list[tuple[str, Offer, int, str, str | None]] = [
    ("not SDP", lambda _: ("hello", SDP), 400, "invalid_sdp", None),
    ("empty", lambda _: ("", SDP), 400, "invalid_sdp", None),
    ("not UTF-8", lambda _: (b"v=0\xff", SDP), 400, "invalid_sdp", None),
    ("half SDP", lambda sdp: (sdp[: sdp.index("m=")], SDP), 400, "sdp_without_audio", None),
    ("no audio", lambda sdp: (without_audio(sdp), SDP), 400, "sdp_without_audio", None),
    ("too long", lambda sdp: (sdp + "a=x\r\n" * 15_000, SDP), 413, "sdp_too_large", None),
    ("body too large", lambda sdp: (sdp + "a=x\r\n" * 50_000, SDP), 413, "too_large", None),
    ("form too large", lambda sdp: (form(sdp + "a=x\r\n" * 50_000), {}), 413, "too_large", None),
    (
        "JSON",
        lambda sdp: (json.dumps({"sdp": sdp}), {"Content-Type": "application/json"}),
        415,
        "unsupported_media_type",
        None,
    ),
    (
        "form without SDP",
        lambda _: (FormData({"sdpp": "x"}, default_to_multipart=True), {}),
        400,
        "missing_required_parameter",
        "sdp",
    ),
    (
        "no form",
        lambda _: ("nonsense", {"Content-Type": "multipart/form-data; boundary=x"}),
        400,
        "invalid_form",
        None,
    ),
    (
        "no boundary",
        lambda _: ("nonsense", {"Content-Type": "multipart/form-data"}),
        400,
        "invalid_form",
        None,
    ),
    ("session no JSON", lambda sdp: (form(sdp, "{"), {}), 400, "invalid_json", "session"),
    ("session no object", lambda sdp: (form(sdp, "5"), {}), 400, "invalid_type", "session"),
    (
        "session without type",
        lambda sdp: (form(sdp, {}), {}),
        400,
        "missing_required_parameter",
        "session.type",
    ),
    ("typo", wants(voise="x"), 400, "unknown_parameter", "session.voise"),
    ("tools", wants(tools=[{"type": "function"}]), 400, "unsupported_parameter", "session.tools"),
    ("bad language", hears(language="xx"), 400, "unsupported_language", None),
    ("bad recogniser", hears(model="nonsense"), 400, "model_not_found", None),
    ("bad model", wants(model="nonsense"), 400, "model_not_found", None),
    ("bad voice", wants(audio={"output": {"voice": "nobody"}}), 400, "voice_not_found", None),
    (
        "wrong rate",
        wants(audio={"input": {"format": {"type": "audio/pcm", "rate": 16000}}}),
        400,
        "invalid_value",
        "session.audio.input.format.rate",
    ),
]


@pytest.mark.parametrize(
    ("offer", "status", "code", "param"),
    [r[1:] for r in BAD_OFFERS],
    ids=[r[0] for r in BAD_OFFERS],
)
def test_a_bad_offer_gets_its_documented_error(
    offer: Offer, status: int, code: str, param: str | None
) -> None:
    async def scene(server: Server) -> None:
        caller = Caller()
        body, headers = offer(await caller.peer.offer())
        response = await server.client.post(CALLS, data=body, headers=headers)
        error = await error_of(response)
        assert (response.status, error["code"]) == (status, code), error
        assert param in (None, error["param"])
        assert (server.sessions.count, server.door.calls.count) == (0, 0)
        await caller.peer.close()

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


def impatient(**peer: float) -> Setup:
    return Setup(settings=RealtimeSettings(peer=PeerSettings(**peer)))  # type: ignore[arg-type]


def test_an_answer_that_nobody_uses_ends_in_bounded_time() -> None:
    async def scene(server: Server) -> None:
        caller = Caller()
        response = await server.client.post(CALLS, data=await caller.peer.offer(), headers=SDP)
        assert response.status == 201
        assert server.sessions.count == 1
        await server.all_left()
        await caller.peer.close()

    against(scene, impatient(connect_timeout_s=0.2))


def cut_cable(caller: Caller) -> None:
    """The caller's sockets neither send nor receive any more: no goodbye."""
    gatherer = caller.peer._audio.receiver.transport.transport.iceGatherer
    for protocol in gatherer._connection._protocols:
        for end, name in ((protocol, "datagram_received"), (protocol.transport, "sendto")):
            setattr(end, name, lambda *_: None)


def test_a_vanished_caller_is_noticed() -> None:
    async def scene(server: Server) -> None:
        async with talking(server) as caller:
            cut_cable(caller)
            await server.all_left()

    against(scene, impatient(vanished_timeout_s=1))


def test_an_offer_whose_sender_left_is_given_up() -> None:
    async def scene(server: Server) -> None:
        caller = Caller()
        offer = await caller.peer.offer()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await server.door.calls.start(offer, Terms())
        await server.all_left()
        await caller.peer.close()

    against(scene)


def test_a_bug_ends_its_call_and_no_other() -> None:
    setup = Setup()

    async def scene(server: Server) -> None:
        async with talking(server) as healthy, talking(server) as unlucky:
            broken = server.door.calls._live[unlucky.call_id]
            assert broken._peer is not None
            broken._peer._fail(ZeroDivisionError())
            await unlucky.peer._closed.wait()
            healthy.send(type="session.update", session={"type": "realtime"})
            await healthy.expect("session.updated")
        await server.all_left()

    against(scene, setup)
    [bug] = setup.bugs
    assert bug.subgroup(ZeroDivisionError) is not None


def test_an_idle_call_is_told_and_ended() -> None:
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


def test_wrong_events_leave_the_call_alive() -> None:
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
