"""The messages of a call's data channel, and the end of a recording."""

import asyncio
import json
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.audio import ASR_RATE_HZ, AudioFrame
from core.errors import RequestError
from devices.willow.wis.rtc.messages import RtcPing, RtcStart, RtcStop, infer, pong, read_message
from devices.willow.wis.rtc.recording import TAIL_GAP_S, TAIL_MS, RtcRecording
from tests.loop import run_virtual


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"type":"ping","message":"hi"}', RtcPing("hi")),
        ('{"type":"ping"}', RtcPing()),
        ('{"type":"start"}', RtcStart()),
        ('{"type":"start","obj":null,"message":null,"extra":1}', RtcStart()),
        ('{"type":"stop","obj":{"model":"large","beam_size":5}}',
         RtcStop(None, {"model": "large", "beam_size": 5})),
    ],
)  # fmt: skip
def test_messages_of_clients_are_read(text: str, message: object) -> None:
    assert read_message(text) == message


@pytest.mark.parametrize(
    "text",
    ["", "x", "[]", "{}", '{"type":"sing"}', '{"type":"stop","obj":[]}', b"\0", '"' * 20_000,
     "[" * 10_000, '{"type":"ping","obj":' + "[" * 9000, '{"type":1}'],
)  # fmt: skip
def test_an_unknown_message_is_answered_with_the_known_ones(text: str | bytes) -> None:
    with pytest.raises(RequestError, match=r'"ping", "start" or "stop"'):
        read_message(text)


@given(st.text() | st.binary())
def test_errors_are_short(text: str | bytes) -> None:
    with suppress(RequestError):
        assert isinstance(read_message(text), RtcPing | RtcStart | RtcStop)
        return
    with pytest.raises(RequestError) as caught:
        read_message(text)
    assert len(str(caught.value)) < 300


def test_answers_have_a_type_known_to_the_client() -> None:
    assert json.loads(pong("x")) == {"type": "pong", "message": "x"}
    assert json.loads(infer("hello", "en", None, "tiny")) == {
        "type": "infer",
        "message": "",
        "obj": {"text": "hello", "language": "en", "model": "tiny"},
    }


FRAME = AudioFrame(np.ones(320, np.int16), ASR_RATE_HZ, 0)


async def collected(take: RtcRecording) -> int:
    """Collects the samples of a recording."""
    total = 0
    async for pcm in take.pieces():
        total += len(pcm)
    return total


@pytest.mark.parametrize(
    ("late_frames", "kept_ms", "took_s"),
    [(50, TAIL_MS, TAIL_MS / 1000), (2, 40, 0.04 + TAIL_GAP_S), (0, 0, TAIL_GAP_S)],
)
def test_a_recording_includes_the_packets_under_way(
    late_frames: int, kept_ms: int, took_s: float
) -> None:
    async def scene() -> None:
        take = RtcRecording(max_audio_s=10)
        async with asyncio.TaskGroup() as tasks:
            found = tasks.create_task(collected(take))
            for _ in range(5):
                take.add(FRAME)
            ending = tasks.create_task(take.tail())
            for _ in range(late_frames):
                await asyncio.sleep(0.02)
                if not ending.done():
                    take.add(FRAME)
            assert await ending == (late_frames * 20 >= TAIL_MS)
            take.close()
        assert found.result() == (100 + kept_ms) * 16
        assert not take.is_full

    assert run_virtual(scene()) >= took_s


def test_the_length_of_a_recording_is_limited() -> None:
    async def scene() -> None:
        take = RtcRecording(max_audio_s=0.05)
        for _ in range(3):
            take.add(FRAME)
        take.close()
        assert take.is_full
        assert await collected(take) == 640

    run_virtual(scene())
