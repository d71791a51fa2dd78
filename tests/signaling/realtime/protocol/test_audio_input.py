"""Audio in events: nothing is lost between its slices, and none blocks the event loop."""

from base64 import b64encode

import numpy as np
import pytest

from core.audio import ASR_RATE_HZ, AudioFrame, Pcm
from core.conversation.events import FormatName
from core.errors import RequestError
from media.codecs import g711
from media.resample import Resampler
from signaling.realtime.protocol import audio_input
from signaling.realtime.protocol.audio_format import WIRE_RATE_HZ
from signaling.realtime.protocol.audio_input import SLICE_MS, InputAudioDecoder

SENT = (3000 * np.sin(np.arange(WIRE_RATE_HZ * 3 + 7) / 9)).astype(np.int16)


def taken(upload: InputAudioDecoder, audio: str) -> list[AudioFrame]:
    upload.push(audio)
    return list(upload.take())


def base64(pcm: Pcm) -> str:
    return b64encode(pcm.astype("<i2").tobytes()).decode()


@pytest.mark.parametrize("cut", [100, 999, 2400, len(SENT)])
def test_audio_cut_in_any_sizes_is_one_stream(cut: int) -> None:
    sent = InputAudioDecoder()
    frames = [
        frame
        for at in range(0, len(SENT), cut)
        for frame in taken(sent, base64(SENT[at : at + cut]))
    ]
    whole = Resampler(WIRE_RATE_HZ, ASR_RATE_HZ, live=True).push(SENT)
    assert np.array_equal(np.concatenate([frame.pcm for frame in frames]), whole)
    assert [frame.start for frame in frames] == [0, *(frame.end for frame in frames[:-1])]


@pytest.mark.parametrize(("name", "law"), [("audio/pcmu", "mu"), ("audio/pcma", "a")])
def test_telephone_audio_is_accepted(name: FormatName, law: g711.G711Law) -> None:
    sent = InputAudioDecoder()
    before = taken(sent, base64(SENT[:2400]))[-1]
    sent.expect(name)
    code = g711.encode((3000 * np.sin(np.arange(8000) / 9)).astype(np.int16), law)
    frames = taken(sent, b64encode(code).decode())
    whole = Resampler(g711.RATE_HZ, ASR_RATE_HZ, live=True).push(g711.decode(code, law))
    assert np.array_equal(np.concatenate([frame.pcm for frame in frames]), whole)
    assert frames[0].start == before.end
    assert len(whole) == pytest.approx(ASR_RATE_HZ, abs=40)


def test_a_long_upload_is_converted_slice_by_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counting(Resampler):
        def push(self, pcm: Pcm) -> Pcm:
            converted.append(len(pcm))
            return super().push(pcm)

    converted: list[int] = []
    monkeypatch.setattr(audio_input, "Resampler", Counting)
    sent = InputAudioDecoder()
    sent.push(base64(SENT))
    frames = sent.take()
    next(frames)
    assert converted == [WIRE_RATE_HZ * SLICE_MS // 1000]
    assert len(list(frames)) == len(SENT) // converted[0]


@pytest.mark.parametrize("audio", ["?", "AAA", "AA==", "AAAA=", "AA AA", "AAAA\n", "AA-_", "äAAA"])
def test_invalid_audio_is_refused(audio: str) -> None:
    with pytest.raises(RequestError) as refused:
        InputAudioDecoder().push(audio)
    assert refused.value.code == "invalid_audio"


def test_audio_is_returned_at_once_without_waiting_for_the_next() -> None:
    piece = base64(SENT[: WIRE_RATE_HZ // 50])
    assert [len(frame.pcm) for frame in taken(InputAudioDecoder(), piece)] == [ASR_RATE_HZ // 50]


@pytest.mark.parametrize(("name", "size"), [("audio/pcm", 480), ("audio/pcmu", 160)])
def test_a_slice_is_full_when_it_is_long_enough(name: FormatName, size: int) -> None:
    sent, full, many = InputAudioDecoder(name), list[bool](), SLICE_MS // 20
    for _ in range(2 * many + 2):
        code = SENT[:size].tobytes() if name == "audio/pcm" else bytes(size)
        sent.push(b64encode(code).decode())
        full.append(sent.has_slice)
        if sent.has_slice:
            assert [len(frame.pcm) for frame in sent.take()] == [ASR_RATE_HZ * SLICE_MS // 1000]
    assert full == ([False] * (many - 1) + [True]) * 2 + [False, False]


def test_gathered_appends_are_one_stream_without_loss() -> None:
    sent, frames = InputAudioDecoder(), list[AudioFrame]()
    for at in range(0, 480 * 12, 480):
        sent.push(base64(SENT[at : at + 480]))
        with pytest.raises(RequestError):
            sent.push("%%%%")
        if sent.has_slice:
            frames += sent.take()
    frames += sent.take()
    assert list(sent.take()) == []
    whole = Resampler(WIRE_RATE_HZ, ASR_RATE_HZ, live=True).push(SENT[: 480 * 12])
    assert np.array_equal(np.concatenate([frame.pcm for frame in frames]), whole)
    assert [frame.start for frame in frames] == [0, *(frame.end for frame in frames[:-1])]


def test_empty_audio_is_not_gathered() -> None:
    audio_input = InputAudioDecoder()
    for _ in range(100):
        assert taken(audio_input, "") == []
    assert not audio_input._pending
