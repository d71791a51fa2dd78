"""Two real peers in one process, over the loopback interface with ICE, DTLS, SRTP and SCTP."""

import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from aiortc import RTCPeerConnection
from aiortc.mediastreams import AudioStreamTrack, VideoStreamTrack
from psutil import Process

from core.audio import AudioFrame
from core.errors import Conflict, RequestError
from media.codecs.opus import OpusSettings
from media.webrtc.data_channel import MAX_EARLY_MESSAGES
from media.webrtc.peer import CloseReason, Peer, PeerSettings
from tests.media.offers import OFFER
from tests.media.paths import on_both_paths
from tests.media.peer_ends import DEADLINE_S, End, all_tasks_ended
from tests.media.signals import assert_continuous, joined, peak_hz, tone

pytestmark = pytest.mark.live


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(3 * DEADLINE_S):
            await coroutine

    asyncio.run(bounded())


async def call(offerer: End, answerer: End) -> None:
    await offerer.peer.accept(await answerer.peer.answer(await offerer.peer.offer()))


Scene = Callable[[End, End], Coroutine[Any, Any, None]]


async def in_call(scene: Scene, offerer: End, answerer: End) -> tuple[CloseReason, CloseReason]:
    """Connects, runs the scene, and returns why each side ended."""
    await call(offerer, answerer)
    async with asyncio.TaskGroup() as tasks:
        ends = [tasks.create_task(end.peer.run()) for end in (offerer, answerer)]
        async with asyncio.timeout(DEADLINE_S):
            for end in (offerer, answerer):
                await end.connected.wait()
                await end.opened.wait()
            await scene(offerer, answerer)
    return ends[0].result(), ends[1].result()


async def hang_up(offerer: End, answerer: End) -> None:
    await offerer.peer.close()


@on_both_paths
def test_audio_and_events_pass_in_both_directions(path: PeerSettings) -> None:
    async def scene(offerer: End, answerer: End) -> None:
        offerer.peer.send('{"type": "session.update"}')
        answerer.peer.send("é" * 100_000)
        assert await answerer.messages.get() == '{"type": "session.update"}'
        assert await offerer.messages.get() == "é" * 100_000
        await offerer.heard_a_second.wait()
        await answerer.heard_a_second.wait()
        await offerer.peer.close()

    async def main() -> None:
        offerer = End(900, path)
        answerer = End(500, replace(path, playout_rate_hz=24_000, jitter_depth=2))
        reasons = await in_call(scene, offerer, answerer)
        assert reasons == (CloseReason.CLOSED, CloseReason.REMOTE_CLOSED)
        for end, heard_hz in ((offerer, 500), (answerer, 900)):
            assert_continuous(end.frames, 16000)
            assert peak_hz(joined(end.frames[10:]), 16000) == pytest.approx(heard_hz, abs=15)
            assert end.closed == [end.peer.reason]

    run(main())


def test_texts_sent_before_the_channel_opens_arrive_in_order() -> None:
    async def scene(offerer: End, answerer: End) -> None:
        assert [await offerer.messages.get() for _ in range(10)] == [str(n) for n in range(10)]
        await offerer.peer.close()

    async def main() -> None:
        offerer, answerer = End(500), End(500)
        for n in range(10):
            answerer.peer.send(str(n))
        await in_call(scene, offerer, answerer)

    run(main())


DNS_THREADS = 1
"The event loop keeps one thread of its pool."


@on_both_paths
def test_a_call_leaves_no_thread_task_or_peer(path: PeerSettings) -> None:
    async def main() -> None:
        for _ in range(3):
            await in_call(hang_up, End(500, path), End(500, path))
        await all_tasks_ended()
        assert process.num_threads() <= before + DNS_THREADS  # also those Python does not see
        gc.collect()
        alive = [o for o in gc.get_objects() if isinstance(o, Peer | RTCPeerConnection)]
        assert len(alive) <= 2  # this frame's last call may still hold them

    process = Process()
    threads, before = threading.active_count(), process.num_threads()
    run(main())
    assert threading.active_count() <= threads


def deaf(end: End) -> None:
    """Cuts the cable: this end's sockets neither send nor receive any more."""
    gatherer = end.peer._audio.receiver.transport.transport.iceGatherer

    def drop(*arguments: object) -> None:
        pass

    for protocol in gatherer._connection._protocols:
        for target, name in ((protocol, "datagram_received"), (protocol.transport, "sendto")):
            setattr(target, name, drop)


@on_both_paths
def test_a_vanished_peer_ends_the_call_in_bounded_time(path: PeerSettings) -> None:
    async def scene(offerer: End, answerer: End) -> None:
        deaf(offerer)
        offerer.peer.stop()

    async def main() -> None:
        answerer = End(500, replace(path, vanished_timeout_s=1))
        reasons = await in_call(scene, End(500, path), answerer)
        assert reasons == (CloseReason.CLOSED, CloseReason.CONNECTION_LOST)
        assert answerer.closed == [CloseReason.CONNECTION_LOST]

    run(main())


@on_both_paths
def test_a_peer_that_never_connects_times_out(path: PeerSettings) -> None:
    async def main() -> None:
        offerer, answerer = End(500, path), End(500, replace(path, connect_timeout_s=0.2))
        await answerer.peer.answer(await offerer.peer.offer())
        await offerer.peer.close()
        assert await answerer.peer.run() is CloseReason.CONNECT_TIMEOUT
        assert answerer.closed == [CloseReason.CONNECT_TIMEOUT]
        await all_tasks_ended()

    run(main())


def test_an_offer_without_candidates_connects() -> None:
    async def main() -> None:
        offerer, answerer = End(500), End(500)
        offer = await offerer.peer.offer()
        bare = "".join(
            line for line in offer.splitlines(keepends=True) if not line.startswith("a=candidate")
        )
        await offerer.peer.accept(await answerer.peer.answer(bare))
        async with asyncio.TaskGroup() as tasks:
            for end in (offerer, answerer):
                tasks.create_task(end.peer.run())
            await answerer.heard_a_second.wait()
            await offerer.peer.close()
        assert answerer.closed == [CloseReason.REMOTE_CLOSED]

    run(main())


@on_both_paths
def test_cancelling_run_frees_the_peer(path: PeerSettings) -> None:
    async def main() -> None:
        offerer, answerer = End(500, path), End(500, path)
        await call(offerer, answerer)
        running = asyncio.ensure_future(answerer.peer.run())
        await answerer.connected.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert answerer.closed == [CloseReason.CLOSED]
        await offerer.peer.close()
        await offerer.peer.close()
        assert offerer.closed == [offerer.peer.reason]

    run(main())


@on_both_paths
@pytest.mark.parametrize(
    "name", ["pull", "next_sound_event", "on_frame", "on_message", "on_open", "on_connected"]
)
def test_a_bug_in_a_callback_ends_the_peer_with_the_error(name: str, path: PeerSettings) -> None:
    async def main() -> None:
        offerer, answerer = End(500), End(500, path)

        def broken(*args: object) -> None:
            raise LookupError(name)

        callbacks = replace(answerer.callbacks(), **{name: broken})
        answerer.peer = Peer(callbacks, path)
        offerer.peer.send("hello")
        await call(offerer, answerer)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(offerer.peer.run())
            with pytest.raises(LookupError, match=name):
                await answerer.peer.run()
        assert answerer.closed == [CloseReason.CLOSED]
        assert offerer.closed == [CloseReason.REMOTE_CLOSED]

    run(main())


def test_a_wrong_frame_from_pull_ends_the_peer_with_the_error() -> None:
    async def main() -> None:
        offerer, answerer = End(500), End(500)
        wrong = AudioFrame(tone(500, 480, 24_000), 24_000, 0)
        answerer.peer = Peer(replace(answerer.callbacks(), pull=lambda: wrong))
        await call(offerer, answerer)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(offerer.peer.run())
            with pytest.raises(ValueError, match="480 samples at 24000 Hz"):
                await answerer.peer.run()

    run(main())


def test_a_peer_that_does_not_read_events_is_closed() -> None:
    async def scene(offerer: End, answerer: End) -> None:
        deaf(offerer)
        while answerer.peer.reason is None:
            answerer.peer.send("x" * 10_000)
        offerer.peer.stop()

    async def main() -> None:
        answerer = End(500, PeerSettings(max_buffered_bytes=100_000))
        reasons = await in_call(scene, End(500), answerer)
        assert reasons[1] is CloseReason.LAGGING
        answerer.peer.send("after the end: dropped")

    run(main())


def test_an_event_larger_than_the_peer_accepts_ends_the_call() -> None:
    async def scene(offerer: End, answerer: End) -> None:
        answerer.peer.send("x" * 262_144)
        assert len(await offerer.messages.get()) == 262_144
        answerer.peer.send("x" * 262_145)

    async def main() -> None:
        reasons = await in_call(scene, End(500), End(500))
        assert reasons == (CloseReason.REMOTE_CLOSED, CloseReason.EVENT_TOO_LARGE)

    run(main())


def test_too_many_texts_before_the_channel_opens_close_the_peer() -> None:
    async def main() -> None:
        answerer = End(500)
        for _ in range(MAX_EARLY_MESSAGES + 1):
            answerer.peer.send("x")
        assert await answerer.peer.run() is CloseReason.LAGGING

    run(main())


@on_both_paths
def test_a_second_offer_on_a_closed_call_is_a_conflict(path: PeerSettings) -> None:
    async def main() -> None:
        offerer, answerer = End(500, path), End(500, path)
        offer = await offerer.peer.offer()
        await answerer.peer.close()
        with pytest.raises(Conflict) as error:
            await answerer.peer.answer(offer)
        assert error.value.code == "call_not_open"
        await offerer.peer.close()

    run(main())


TWO_CHANNELS = OFFER.replace("a=mid:1\n", "") + OFFER[OFFER.index("m=application") :]
"It passes all checks of ours, but aiortc refuses it when it answers."


@pytest.mark.parametrize("offer", ["", "hello", "v=0\r\n", TWO_CHANNELS])
def test_a_bad_offer_closes_the_peer_and_leaves_no_task(offer: str) -> None:
    async def main() -> None:
        answerer = End(500)
        with pytest.raises(RequestError):
            await answerer.peer.answer(offer)
        assert answerer.closed == [CloseReason.CLOSED]
        await all_tasks_ended()

    run(main())


@on_both_paths
def test_video_and_foreign_channels_are_declined(path: PeerSettings) -> None:
    async def main() -> None:
        answerer = End(700, path)
        browser = RTCPeerConnection()
        browser.addTrack(AudioStreamTrack())
        browser.addTrack(VideoStreamTrack())
        foreign = browser.createDataChannel("chat")
        declined = asyncio.Event()
        foreign.on("close", declined.set)
        await browser.setLocalDescription(await browser.createOffer())
        answer = await answerer.peer.answer(browser.localDescription.sdp)
        audio, video = (part for part in answer.split("m=") if part.startswith(("audio", "video")))
        assert "a=sendrecv" in audio
        assert "a=inactive" in video
        assert "opus" in audio
        assert "PCMU" not in audio
        await browser.setRemoteDescription(
            type(browser.localDescription)(sdp=answer, type="answer")
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(answerer.peer.run())
            await answerer.heard_a_second.wait()
            await declined.wait()
            await browser.close()
        assert not answerer.opened.is_set()
        assert answerer.closed == [CloseReason.REMOTE_CLOSED]

    run(main())


def test_packets_of_10_ms_become_frames_of_20_ms() -> None:
    async def scene(offerer: End, answerer: End) -> None:
        await answerer.heard_a_second.wait()
        await offerer.peer.close()

    async def main() -> None:
        offerer = End(500, PeerSettings(opus=OpusSettings(frame_ms=10)))
        half = AudioFrame(tone(500, 480, 48_000), 48_000, 0)
        offerer.peer = Peer(replace(offerer.callbacks(), pull=lambda: half), offerer.settings)
        answerer = End(500)
        await in_call(scene, offerer, answerer)
        assert_continuous(answerer.frames, 16000)

    run(main())
