"""Calls with a real peer at the other end: start, stop, ping, and what goes wrong."""

import asyncio
from typing import Any

import numpy as np
import pytest
from aiortc.rtp import RtcpByePacket

from core.audio import Pcm
from devices.willow.wis.door import WillowSettings
from devices.willow.wis.rtc.calls import call_settings
from tests.devices.willow.wis.rtc.webrtc_client import Caller, calling
from tests.devices.willow.wis.servers import Scene, Server, TranslatingAsr, against
from tests.server.http.harness import error_of

pytestmark = pytest.mark.live


class LoudAsr(TranslatingAsr):
    """A recogniser that counts loud tenths of a second: a codec keeps no exact levels."""

    async def decode(self, item: Any, priority: Any) -> Any:
        result = await super().decode(item, priority)
        frames = np.abs(item.pcm[: len(item.pcm) // 320 * 320].reshape(-1, 320)).max(axis=1)
        self.loud_ms = 20 * int((frames > 2000).sum())
        return type(result)(f"{round(self.loud_ms / 100)} tenths", 1, result.language)


def loud(duration_ms: int) -> Pcm:
    wave = 9000 * np.sin(np.arange(48 * duration_ms) * 2 * np.pi * 300 / 48_000)
    return wave.astype(np.int16)


def test_a_sentence_between_start_and_stop_is_recognised_to_its_end() -> None:
    async def act(server: Server) -> None:
        async with calling(server.client) as caller:
            await caller.say(loud(300))  # before start: not meant for us
            caller.send("start")
            assert (await caller.messages.get())["message"] == "recording started"
            await caller.say(loud(500))
            caller.send("stop", obj={"model": "large", "beam_size": 5, "detect_language": False})
            found = await caller.expect("infer")
            assert found["obj"] == {"text": "5 tenths", "language": "en", "model": "level"}
            logs = [await caller.messages.get() for _ in range(2)]
            assert {log["type"] for log in logs} == {"log"}
            assert "no model of the size large is here" in logs[0]["message"]
            assert "ms after its end" in logs[1]["message"]
            assert server.door.calls.count == 1
        while server.door.calls.count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    against(act, Scene(asr=LoudAsr()))


def test_each_sentence_of_a_call_has_its_own_options() -> None:
    async def act(server: Server) -> None:
        async with calling(server.client, {"force_language": "de"}) as caller:
            for obj, language, is_translated in (
                (None, "de", False),
                ({"force_language": "en", "translate": True}, "en", True),
                ({"detect_language": None, "model": None}, "de", False),
            ):
                caller.send("start")
                await caller.say(loud(200))
                caller.send("stop", obj=obj)
                found = (await caller.expect("infer"))["obj"]
                assert found["language"] == language
                assert found["text"] == "2 tenths"
                assert ("translation" in found) == is_translated

    against(act, Scene(asr=LoudAsr()))


class LateAsr(LoudAsr):
    """A recogniser that takes a second longer for the longer sentence."""

    async def decode(self, item: Any, priority: Any) -> Any:
        if len(item.pcm) > 16 * 600:
            await asyncio.sleep(1)
        return await super().decode(item, priority)


def test_answers_come_in_the_order_of_the_sentences() -> None:
    async def act(server: Server) -> None:
        async with calling(server.client) as caller:
            for duration_ms in (800, 200):
                caller.send("start")
                await caller.say(loud(duration_ms))
                caller.send("stop")
                await caller.say(loud(200) * 0)  # what follows at once may be in the first's tail
            tenths = [(await caller.expect("infer"))["obj"]["text"].split()[0] for _ in range(2)]
            assert int(tenths[0]) > int(tenths[1]) > 0

    against(act, Scene(asr=LateAsr()))


def test_partial_words_are_sent_if_start_requests_them() -> None:
    async def act(server: Server) -> None:
        async with calling(server.client) as caller:
            caller.send("start", obj={"partials": True})
            await caller.say(loud(1500))
            first = await caller.expect("partial")
            assert set(first["obj"]) == {"text", "stable"}
            assert first["obj"]["text"].endswith("tenths")
            caller.send("stop")
            message = await caller.messages.get()
            while message["type"] in ("partial", "log"):
                message = await caller.messages.get()
            assert (message["type"], message["obj"]["text"]) == ("infer", "15 tenths")

    against(act, Scene(asr=LoudAsr()))


def test_ping_is_answered_and_wrong_messages_are_refused() -> None:
    async def act(server: Server) -> None:
        async with calling(server.client) as caller:
            mistakes = [
                ("stop", None, "send start first"),
                ("sing", None, '"ping", "start" or "stop"'),
                ("start", {"beam_size": 1000}, "1 to 10"),
            ]
            for kind, obj, allowed in mistakes:
                caller.send(kind, obj=obj)
                assert allowed in (await caller.expect("error"))["message"]
            caller.send("start")
            caller.send("start")
            assert "already recording" in (await caller.expect("error"))["message"]
            caller.send("stop", obj={"model": "huge"})
            assert "tiny, base" in (await caller.expect("error"))["message"]
            caller.send("ping", "still there?")
            assert (await caller.expect("pong"))["message"] == "still there?"
            caller.send("start")
            await caller.say(loud(200))
            caller.send("stop")
            assert (await caller.expect("infer"))["obj"]["text"] == "2 tenths"

    against(act, Scene(asr=LoudAsr()))


def test_a_failed_engine_gives_an_error_message() -> None:
    async def act(server: Server) -> None:
        async with calling(server.client) as caller:
            server.scene.asr.broken = True
            caller.send("start")
            await caller.say(loud(200))
            caller.send("stop")
            assert "broken on purpose" in (await caller.expect("error"))["message"]
            server.scene.asr.broken = False
            caller.send("start")
            await caller.say(loud(200))
            caller.send("stop")
            assert (await caller.expect("infer"))["obj"]["text"] == "2 tenths"

    against(act, Scene(asr=LoudAsr()))


async def _mute(caller: Caller) -> None:
    """Mutes as browsers do between sentences; some of them also send an RTCP BYE."""
    (sender,) = caller.peer._pc.getSenders()
    track = sender.track
    sender.replaceTrack(None)
    await sender._send_rtcp([RtcpByePacket(sources=[sender._ssrc])])
    await asyncio.sleep(0.5)
    sender.replaceTrack(track)


def test_a_client_may_remove_its_microphone_track() -> None:
    async def act(server: Server) -> None:
        async with calling(server.client) as caller:
            for _ in range(2):
                caller.send("start")
                await caller.say(loud(300))
                caller.send("stop")
                await _mute(caller)
                assert (await caller.expect("infer"))["obj"]["text"] == "3 tenths"

    against(act, Scene(asr=LoudAsr()))


def test_speech_beyond_the_limit_is_dropped() -> None:
    async def act(server: Server) -> None:
        async with calling(server.client) as caller:
            caller.send("start")
            await caller.say(loud(600))
            caller.send("stop")
            assert (await caller.expect("infer"))["obj"]["text"] in ("2 tenths", "3 tenths")
            log = await caller.messages.get()
            assert "were kept" in log["message"]

    against(act, Scene(asr=LoudAsr(), settings=WillowSettings(max_stream_s=0.3)))


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_json"),
        (b"v=0", "invalid_json"),
        (b"[" * 9000, "invalid_json"),
        (b'{"sdp": 1, "type": "offer"}', "invalid_json"),
        (b'{"sdp": "v=0", "type": "answer"}', "invalid_value"),
        (b'{"sdp": "nonsense", "type": "offer"}', "invalid_sdp"),
        (b'{"sdp": "v=0\\r\\no=- 0 0 IN IP4 0.0.0.0\\r\\ns=-\\r\\nt=0 0\\r\\n", "type": "offer"}',
         "sdp_without_audio"),
    ],
)  # fmt: skip
def test_a_wrong_offer_is_named(body: bytes, code: str) -> None:
    async def act(server: Server) -> None:
        response = await server.client.post("/api/rtc/asr", data=body)
        assert (response.status, (await error_of(response))["code"]) == (400, code)

    against(act)


def test_a_full_server_answers_with_retry_after() -> None:
    async def act(server: Server) -> None:
        async with calling(server.client):
            second = Caller()
            offer = {"sdp": await second.peer.offer(), "type": "offer"}
            response = await server.client.post("/api/rtc/asr", json=offer)
            assert (response.status, (await error_of(response))["code"]) == (503, "server_full")
            assert response.headers["Retry-After"]
            await second.peer.close()

    against(act, Scene(settings=WillowSettings(max_calls=1)))


def test_a_call_that_never_connects_ends() -> None:
    async def act(server: Server) -> None:
        caller = Caller()
        offer = {"sdp": await caller.peer.offer(), "type": "offer"}
        assert (await server.client.post("/api/rtc/asr", json=offer)).status == 200
        assert server.door.calls.count == 1
        await caller.peer.close()
        while server.door.calls.count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    peer = call_settings()
    settings = WillowSettings(peer=type(peer)(channel_label="chat", connect_timeout_s=0.5))
    against(act, Scene(settings=settings))
