import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise

import numpy as np
import pytest

from core.audio import AudioFrame
from media.codecs.opus import OpusDecoder, OpusEncoder, OpusSettings
from media.webrtc.rtp.jitter_buffer import JitterStats
from media.webrtc.rtp.pacer import PacingTimer
from media.webrtc.rtp.tracks import (
    LEAD_S,
    MAX_FILL_MS,
    MAX_HOLD_S,
    MAX_SHIFT_S,
    TICK_GRID_S,
    TrackSink,
    TrackSource,
)
from tests.loop import VirtualClockLoop, run_virtual
from tests.media.signals import assert_continuous, joined, peak_hz, tone

pytestmark = pytest.mark.many

Packet = tuple[int, int, bytes]
"Sequence number, timestamp, payload."


def stream(
    count: int, hz: float = 500, first: int = 65_530, clock: int = 2**32 - 9600
) -> list[Packet]:
    """Returns a tone as RTP packets whose sequence numbers and timestamps wrap."""
    encoder = OpusEncoder(48000)
    return [
        (
            (first + i) & 0xFFFF,
            (clock + 960 * i) & 0xFFFFFFFF,
            encoder.encode(tone(hz, 960, 48000, start=960 * i)),
        )
        for i in range(count)
    ]


def listen(source: TrackSource, packets: list[Packet]) -> list[AudioFrame]:
    return [frame for packet in packets for frame in source.push(*packet)]


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_each_packet_becomes_one_frame(depth: int) -> None:
    source = TrackSource(depth)
    counts = [len(source.push(*packet)) for packet in stream(50)]
    assert counts == [1] * 50


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_the_end_of_sound_is_released_when_the_sender_pauses(depth: int) -> None:
    packets = stream(60)
    source = TrackSource(depth)
    frames = [*listen(source, packets[:30]), *source.flush()]
    assert len(frames) == 30
    assert source.flush() == []
    frames += [*listen(source, packets[30:]), *source.flush()]
    assert_continuous(frames, 16000)
    assert (len(frames), source.filled_ms, source.stats) == (60, 0, JitterStats())


def test_the_received_audio_is_the_sent_audio() -> None:
    frames = listen(TrackSource(), stream(100))
    assert_continuous(frames, 16000)
    assert peak_hz(joined(frames[5:]), 16000) == pytest.approx(500, abs=2)


@pytest.mark.parametrize("lost", [[20], [20, 21, 22], [10, 30, 50], list(range(20, 60))])
def test_lost_packets_are_filled_to_keep_the_time(lost: list[int]) -> None:
    source = TrackSource()
    frames = listen(source, [p for i, p in enumerate(stream(100)) if i not in lost])
    assert_continuous(frames, 16000)
    assert len(frames) == 100
    assert source.filled_ms == 20 * len(lost)
    assert source.stats == JitterStats(lost=len(lost))


def test_one_lost_packet_is_inaudible() -> None:
    packets = stream(60)
    whole = joined(listen(TrackSource(), packets))
    pierced = joined(listen(TrackSource(), packets[:30] + packets[31:]))
    assert np.abs(whole.astype(int) - pierced).max() < 1000  # of 8000, which silence would give


def test_a_long_gap_is_filled_up_to_a_limit() -> None:
    packets = stream(400)
    source = TrackSource()
    frames = listen(source, packets[:50] + packets[350:])
    assert_continuous(frames, 16000)
    assert len(frames) == 100 + MAX_FILL_MS // 20


def test_a_restarted_sender_continues_without_a_gap() -> None:
    source = TrackSource()
    frames = listen(source, stream(50) + stream(50, first=9000, clock=77))
    assert_continuous(frames, 16000)
    assert source.stats.resyncs == 1
    assert len(frames) >= 97


def test_padding_packets_count_neither_as_sound_nor_as_loss() -> None:
    probed: list[tuple[int, bytes]] = []
    for place, (_, timestamp, payload) in enumerate(stream(50)):
        probed.append((timestamp, payload))
        if place in {0, 10, 30}:  # three of them, with the timestamp of the packet before
            probed += [(timestamp, b"")] * 3
    source = TrackSource()
    frames = listen(source, [(number, *packet) for number, packet in enumerate(probed)])
    assert_continuous(frames, 16000)
    assert (len(frames), source.corrupt, source.filled_ms) == (50, 0, 0)
    assert source.stats == JitterStats()


def test_padding_in_place_of_sound_leaves_a_gap_of_its_length() -> None:
    packets = stream(50)
    packets[20] = (*packets[20][:2], b"")
    source = TrackSource()
    frames = listen(source, packets)
    assert_continuous(frames, 16000)
    assert (len(frames), source.corrupt, source.filled_ms) == (50, 0, 20)


@pytest.mark.parametrize("bad", [b"\x03", b"\xff\xff\xff"])
def test_a_bad_packet_is_concealed(bad: bytes) -> None:
    packets = stream(50)
    packets[20] = (*packets[20][:2], bad)
    source = TrackSource()
    frames = listen(source, packets)
    assert_continuous(frames, 16000)
    assert (len(frames), source.corrupt) == (50, 1)


def test_packets_of_another_length_become_frames_of_20_ms() -> None:
    encoder = OpusEncoder(48000)
    payloads = [encoder.encode(np.zeros(960, np.int16)) for _ in range(9)]
    # code 3: three frames in one packet (RFC 6716 section 3.2.5), as a 60 ms sender makes them
    sixty_ms = [
        bytes([payloads[0][0] | 3, 0x83])
        + bytes(len(p) - 1 for p in payloads[i : i + 2])
        + b"".join(p[1:] for p in payloads[i : i + 3])
        for i in range(0, 9, 3)
    ]
    frames = listen(TrackSource(0), [(i, 2880 * i, p) for i, p in enumerate(sixty_ms)])
    assert_continuous(frames, 16000)
    assert len(frames) == 9


Sent = asyncio.Queue[tuple[int, bytes]]
"Timestamps and payloads of sent packets."


@asynccontextmanager
async def sending(track: TrackSink) -> AsyncGenerator[Sent]:
    """Runs the track and yields the packets that it sends."""
    sent = Sent()
    running = asyncio.ensure_future(track.run(lambda *packet: sent.put_nowait(packet)))
    try:
        yield sent
    finally:
        running.cancel()
        await asyncio.wait([running])


def beep(index: int) -> AudioFrame:
    return AudioFrame(tone(440, 480, 24000, start=480 * index), 24000, 480 * index)


def test_source_track_sends_20_ms_every_20_ms() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        decoder = OpusDecoder()
        async with sending(TrackSink(lambda: beep(0), 24000)) as sent:
            for tick in range(50):
                timestamp, payload = await sent.get()
                assert timestamp == 960 * tick
                assert loop.time() == pytest.approx(0.02 * tick)
                assert len(decoder.decode(payload)) == 960

    assert run_virtual(main()) == pytest.approx(0.98)


@pytest.mark.parametrize("offset_ms", [0, 3, 7, 12, 19])
def test_in_silence_packets_leave_shortly_before_the_other_sides(offset_ms: int) -> None:
    async def main() -> list[float]:
        loop, after = asyncio.get_running_loop(), list[float]()
        sound: list[AudioFrame | None] = [None]
        track = TrackSink(lambda: sound[0], 24000)

        async def other_side() -> None:
            await asyncio.sleep(offset_ms / 1000)
            for _ in range(100):
                came.append(loop.time())
                track.note_arrival()
                await asyncio.sleep(0.02)

        came: list[float] = []
        before = 0.0
        async with asyncio.TaskGroup() as tasks, sending(track) as sent:
            task = tasks.create_task(other_side())
            for tick in range(90):
                if tick == 80:
                    sound[0] = beep(0)
                    before = loop.time()
                assert (await sent.get())[0] == 960 * tick
                after.append(loop.time() - came[-1] if came else 0)  # since the last packet
            assert loop.time() - before == pytest.approx(10 * 0.02, abs=10 * MAX_SHIFT_S), (
                "sound keeps its pace"
            )
            task.cancel()
        return after

    found: list[list[float]] = []

    async def run() -> None:
        found.append(await main())

    run_virtual(run())
    assert all(abs(0.02 - one - LEAD_S) < 0.001 for one in found[0][60:80])


@pytest.mark.parametrize("offset_ms", [0, 1, 4, 5, 6, 9, 17])
def test_in_sound_packets_move_to_the_common_beat(offset_ms: int) -> None:
    """They move by small steps and then stay; the timestamps do not show it."""

    async def main() -> None:
        loop, times = asyncio.get_running_loop(), list[float]()
        await asyncio.sleep(offset_ms / 1000)
        async with sending(TrackSink(lambda: beep(0), 24000)) as sent:
            for tick in range(30):
                assert (await sent.get())[0] == 960 * tick
                times.append(loop.time())
        steps = [after - before for before, after in pairwise(times)]
        assert all(abs(step - 0.02) < MAX_SHIFT_S + 1e-6 for step in steps)
        assert all(
            abs(time / TICK_GRID_S - round(time / TICK_GRID_S)) < 1e-3 for time in times[15:]
        )
        assert abs(times[20] - times[0] - 20 * 0.02) < TICK_GRID_S / 2 + 1e-6, "to the nearest"

    run_virtual(main())


def stalls(loop: VirtualClockLoop, seconds: Callable[[int], float]) -> TrackSink:
    """Returns a silent track whose loop stalls at each packet, by its number, for some seconds."""
    number = 0

    def pull() -> None:
        nonlocal number
        loop.now += seconds(number)
        number += 1

    return TrackSink(pull)


def virtual_loop() -> VirtualClockLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualClockLoop)
    return loop


def test_the_pace_does_not_drift_if_each_packet_takes_time() -> None:
    async def main() -> None:
        async with sending(stalls(virtual_loop(), lambda _: 0.013)) as sent:
            for _ in range(100):
                await sent.get()

    assert run_virtual(main()) == pytest.approx(99 * 0.02 + 0.013)


@pytest.mark.parametrize(("stall_s", "skipped"), [(0.09, 0), (0.5, 23)])
def test_a_short_stall_is_made_up_and_a_long_one_leaves_a_gap(stall_s: float, skipped: int) -> None:
    async def main() -> None:
        loop = virtual_loop()
        track = stalls(loop, lambda number: (stall_s + 0.015) * (number == 0))
        async with sending(track) as sent:
            await sent.get()
            timestamps = [(await sent.get())[0] for _ in range(50)]
        assert track.skipped_ticks == pytest.approx(skipped, abs=1)
        assert timestamps[0] == 960 * (1 + track.skipped_ticks)
        assert loop.time() == pytest.approx(0.02 * (50 + track.skipped_ticks))

    run_virtual(main())


def test_silence_is_sent_if_nothing_plays() -> None:
    async def main() -> None:
        decoder = OpusDecoder()
        async with sending(TrackSink(lambda: None)) as sent:
            heard = [decoder.decode((await sent.get())[1]) for _ in range(5)]
        assert not np.concatenate(heard).any()

    run_virtual(main())


def test_silence_is_sent_on_time_without_the_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    encoders: list[OpusEncoder] = []

    class Kept(OpusEncoder):
        def __init__(self, rate_hz: int, settings: OpusSettings | None = None) -> None:
            super().__init__(rate_hz, settings)
            encoders.append(self)

    monkeypatch.setattr("media.webrtc.rtp.tracks.OpusEncoder", Kept)
    played = [*(beep(i) for i in range(50)), *[None] * 100, *(beep(i) for i in range(50))]

    async def main() -> None:
        frames = iter(played)
        decoder = OpusDecoder()
        heard = []
        async with sending(TrackSink(lambda: next(frames), 24000)) as sent:
            for tick in range(len(played)):
                timestamp, payload = await sent.get()
                assert timestamp == 960 * tick
                assert asyncio.get_running_loop().time() == pytest.approx(0.02 * tick)
                heard.append(np.abs(decoder.decode(payload).astype(int)).max())
        assert encoders[0].coded_frames < 50 + 20 + 50
        assert max(heard[52:150]) < 100, "no click where sound ends, nor where silence is repeated"
        assert heard[150] > 6000, "of 8000: the first packet after silence has its sound"

    run_virtual(main())


@pytest.mark.parametrize(
    "wrong",
    [
        AudioFrame(np.zeros(480, np.int16), 24000, 0),
        AudioFrame(np.zeros(959, np.int16), 48000, 0),
        AudioFrame(np.zeros(0, np.int16), 48000, 0),
    ],
)
def test_a_frame_of_a_wrong_length_or_rate_is_an_error(wrong: AudioFrame) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="the track plays 960 at 48000 Hz"):
            await TrackSink(lambda: wrong).run(lambda *packet: None)

    run_virtual(main())


def test_a_failed_track_does_not_affect_others_of_its_pacer() -> None:
    async def main() -> None:
        pacer = PacingTimer()

        def fails() -> None:
            raise LookupError("pull")

        async with sending(TrackSink(lambda: None, pacer=pacer)) as sent:
            with pytest.raises(LookupError, match="pull"):
                await TrackSink(fails, pacer=pacer).run(lambda *packet: None)
            assert [(await sent.get())[0] for _ in range(5)] == [960 * tick for tick in range(5)]

    run_virtual(main())


def test_a_stopped_track_sends_nothing() -> None:
    async def main() -> None:
        async with sending(TrackSink(lambda: None)) as sent:
            await sent.get()
        await asyncio.sleep(0.1)
        assert sent.empty()

    run_virtual(main())


class Speaker:
    """A session's playout: the current sound, and whether sound is about to begin."""

    def __init__(self) -> None:
        self.sound: AudioFrame | None = None
        self.coming: asyncio.Event | None = None
        self.track = TrackSink(lambda: self.sound, 24000, None, lambda: self.coming)

    def begin(self) -> None:
        assert self.coming is not None
        self.sound = beep(0)
        self.coming.set()


async def next_of(sent: Sent) -> tuple[float, int]:
    """Returns the time at which the next packet leaves, and its timestamp, in ms."""
    timestamp, _ = await sent.get()
    return round(asyncio.get_running_loop().time() * 1000, 3), timestamp // 48


def test_a_silent_packet_waits_for_sound_that_is_about_to_begin() -> None:
    async def main() -> None:
        speaker = Speaker()
        async with sending(speaker.track) as sent:
            assert [await next_of(sent) for _ in range(2)] == [(0, 0), (20, 20)]
            speaker.coming = asyncio.Event()
            awaits = [speaker.track.awaits_sound]
            asyncio.get_running_loop().call_at(0.044, speaker.begin)
            assert await next_of(sent) == (44, 40)
            assert [*awaits, speaker.track.awaits_sound] == [True, False]
            assert [await next_of(sent) for _ in range(2)] == [(60, 60), (80, 80)]

    run_virtual(main())


def test_texts_may_wait_while_a_packet_waits_for_sound() -> None:
    async def main() -> None:
        speaker = Speaker()
        async with sending(speaker.track) as sent:
            await next_of(sent)
            speaker.coming = asyncio.Event()
            await asyncio.sleep(0.02 + MAX_HOLD_S / 2)
            assert speaker.track.awaits_sound
            speaker.begin()
            assert await next_of(sent) == (20 + 500 * MAX_HOLD_S, 20)
            assert not speaker.track.awaits_sound

    run_virtual(main())


def test_packets_are_equally_late_until_sound_begins() -> None:
    async def main() -> None:
        speaker = Speaker()
        async with sending(speaker.track) as sent:
            await next_of(sent)
            speaker.coming = asyncio.Event()
            late_ms = 1000 * MAX_HOLD_S
            assert await next_of(sent) == (20 + late_ms, 20)
            awaits = [speaker.track.awaits_sound]  # false, since one packet has waited in vain
            assert [await next_of(sent) for _ in range(2)] == [
                (40 + late_ms, 40),
                (60 + late_ms, 60),
            ]
            asyncio.get_running_loop().call_at(0.083, speaker.begin)
            assert await next_of(sent) == (83, 80)
            speaker.sound = speaker.coming = None
            assert [await next_of(sent) for _ in range(2)] == [(100, 100), (120, 120)]
            speaker.coming = asyncio.Event()  # the next answer
            assert [*awaits, speaker.track.awaits_sound] == [False, True]
            assert await next_of(sent) == (140 + late_ms, 140)

    run_virtual(main())


def test_a_silent_packet_right_after_sound_does_not_wait() -> None:
    async def main() -> None:
        speaker = Speaker()
        speaker.sound = beep(0)
        async with sending(speaker.track) as sent:
            await next_of(sent)
            speaker.coming, speaker.sound = asyncio.Event(), None
            assert await next_of(sent) == (20, 20)
            assert await next_of(sent) == (40 + 1000 * MAX_HOLD_S, 40)

    run_virtual(main())


def test_a_track_stopped_during_a_wait_ends() -> None:
    async def main() -> None:
        speaker = Speaker()
        async with sending(speaker.track) as sent:
            await next_of(sent)
            speaker.coming = asyncio.Event()
            await asyncio.sleep(0.02 + MAX_HOLD_S / 2)
        await asyncio.sleep(0.1)
        assert sent.empty()

    run_virtual(main())
