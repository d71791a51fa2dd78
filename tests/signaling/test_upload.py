"""Audio in events: nothing is lost between its slices, and none holds up the event loop."""

from base64 import b64encode

import numpy as np
import pytest

from core.audio import ASR_RATE_HZ, AudioFrame, Pcm
from core.errors import RequestError
from core.events import FormatName
from media import g711
from media.resample import Resampler
from signaling.realtime import upload
from signaling.realtime.sound import WIRE_RATE_HZ
from signaling.realtime.upload import SLICE_MS, Upload

SENT = (3000 * np.sin(np.arange(WIRE_RATE_HZ * 3 + 7) / 9)).astype(np.int16)


def base64(pcm: Pcm) -> str:
    return b64encode(pcm.astype("<i2").tobytes()).decode()


@pytest.mark.parametrize("cut", [100, 999, 2400, len(SENT)])
def test_however_audio_is_cut_it_is_one_stream(cut: int) -> None:
    taken = Upload()
    frames = [
        frame
        for at in range(0, len(SENT), cut)
        for frame in taken.push(base64(SENT[at : at + cut]))
    ]
    whole = Resampler(WIRE_RATE_HZ, ASR_RATE_HZ, live=True).push(SENT)
    assert np.array_equal(np.concatenate([frame.pcm for frame in frames]), whole)
    assert [frame.start for frame in frames] == [0, *(frame.end for frame in frames[:-1])]


@pytest.mark.parametrize(("name", "law"), [("audio/pcmu", "mu"), ("audio/pcma", "a")])
def test_telephone_audio_is_taken(name: FormatName, law: g711.Law) -> None:
    taken = Upload()
    before = list(taken.push(base64(SENT[:2400])))[-1]
    taken.expect(name)
    code = g711.encode((3000 * np.sin(np.arange(8000) / 9)).astype(np.int16), law)
    frames = list(taken.push(b64encode(code).decode()))
    whole = Resampler(g711.RATE_HZ, ASR_RATE_HZ, live=True).push(g711.decode(code, law))
    assert np.array_equal(np.concatenate([frame.pcm for frame in frames]), whole)
    assert frames[0].start == before.end
    assert len(whole) == pytest.approx(ASR_RATE_HZ, abs=40)


def test_a_long_upload_is_converted_as_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counting(Resampler):
        def push(self, pcm: Pcm) -> Pcm:
            converted.append(len(pcm))
            return super().push(pcm)

    converted: list[int] = []
    monkeypatch.setattr(upload, "Resampler", Counting)
    frames = Upload().push(base64(SENT))
    next(frames)
    assert converted == [WIRE_RATE_HZ * SLICE_MS // 1000]
    assert len(list(frames)) == 30


@pytest.mark.parametrize("audio", ["?", "AAA", "AA==", "AAAA=", "AA AA", "AAAA\n", "AA-_", "äAAA"])
def test_what_is_no_audio(audio: str) -> None:
    with pytest.raises(RequestError) as refused:
        list(Upload().push(audio))
    assert refused.value.code == "invalid_audio"


def test_what_was_sent_is_heard_at_once_and_not_with_the_next_piece() -> None:
    taken = Upload()
    piece = base64(SENT[: WIRE_RATE_HZ // 50])
    assert [len(frame.pcm) for frame in taken.push(piece)] == [ASR_RATE_HZ // 50]


def test_what_nobody_waits_for_is_gathered_and_nothing_of_it_is_lost() -> None:
    taken, frames = Upload(), list[list[AudioFrame]]()
    for at in range(0, 480 * 12, 480):
        frames.append(list(taken.push(base64(SENT[at : at + 480]), gathers=True)))
    assert [len(some) for some in frames] == [0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0]
    with pytest.raises(RequestError):
        list(taken.push("%%%%", gathers=True))
    last = list(taken.rest())
    assert list(taken.rest()) == []
    whole = Resampler(WIRE_RATE_HZ, ASR_RATE_HZ, live=True).push(SENT[: 480 * 12])
    heard = np.concatenate([frame.pcm for frame in (*frames[4], *frames[9], *last)])
    assert np.array_equal(heard, whole)
    assert frames[9][0].start == frames[4][0].end


def test_empty_audio_is_not_gathered() -> None:
    upload = Upload()
    assert [list(upload.push("", gathers=True)) for _ in range(100)] == [[]] * 100
    assert not upload._held
