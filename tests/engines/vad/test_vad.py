"""Voice activity detection: speech is detected, noise and music are not, streams share no state."""

import wave

import numpy as np
import numpy.typing as npt
import pytest

from core.audio import ASR_RATE_HZ, Pcm, silence
from core.errors import EngineMissing
from engines.base import Vad
from engines.registry import EngineKind, load
from engines.vad.gated import LEAD_SAMPLES, GatedVad
from engines.vad.silero import SileroVad
from engines.vad.webrtc import Settings as WebrtcSettings
from engines.vad.webrtc import WebrtcVad
from tests.shared import shared_data
from tests.speech import say

pytestmark = pytest.mark.live

ENGINES = ["webrtc", "silero", "gated"]
NEURAL = ["silero", "gated"]


def probabilities(vad: Vad, pcm: Pcm) -> npt.NDArray[np.float64]:
    size = vad.frame_samples
    return np.array([vad.push(pcm[i : i + size]) for i in range(0, len(pcm) - size + 1, size)])


def between(vad: Vad, values: npt.NDArray[np.float64], start_ms: int, end_ms: int) -> list[float]:
    frame_ms = 1000 * vad.frame_samples / ASR_RATE_HZ
    return [p for i, p in enumerate(values) if start_ms <= i * frame_ms < end_ms]


def noise(level: float, seconds: float = 3) -> Pcm:
    samples = np.random.default_rng(7).normal(0, level, round(seconds * ASR_RATE_HZ))
    return samples.astype(np.int16)


def melody() -> Pcm:
    """Returns chords that decay, two per second."""
    time = np.arange(ASR_RATE_HZ // 2) / ASR_RATE_HZ
    chords = [(262, 330, 392), (294, 370, 440), (330, 415, 494), (349, 440, 523)]
    parts = [
        sum(np.sin(2 * np.pi * f * time) for f in chord) * np.exp(-4 * time) for chord in chords
    ]
    return (np.concatenate(parts * 2) * 5000).astype(np.int16)


@pytest.mark.parametrize("name", ENGINES)
def test_speech_between_silences_is_detected(name: str) -> None:
    clip = say("turn on the kitchen lights please", lead_ms=600, tail_ms=2000)
    speech_end_ms = len(clip) * 1000 // ASR_RATE_HZ - 2000
    vad = load("vad", name, {}).open()
    values = probabilities(vad, clip)
    assert max(between(vad, values, 0, 500)) < 0.3
    speech = between(vad, values, 800, speech_end_ms - 200)
    assert np.mean(np.array(speech) >= 0.5) > 0.8
    assert max(between(vad, values, speech_end_ms + 500, speech_end_ms + 2000)) < 0.3


@pytest.mark.parametrize("name", NEURAL)
@pytest.mark.parametrize("sound", ["hiss", "loud noise", "music"])
def test_noise_and_music_are_not_speech(name: str, sound: str) -> None:
    pcm = {"hiss": noise(30), "loud noise": noise(3000), "music": melody()}[sound]
    values = probabilities(load("vad", name, {}).open(), pcm)
    assert np.mean(values >= 0.5) < 0.03


@pytest.mark.parametrize("name", ENGINES)
def test_streams_share_no_state(name: str) -> None:
    engine = load("vad", name, {})
    clips = [say("good morning everybody"), say("what time is it", "en-gb"), noise(2000, 1.2)]
    shortest = min(map(len, clips))
    alone = [probabilities(engine.open(), clip[:shortest]) for clip in clips]
    streams = [engine.open() for _ in clips]
    size = streams[0].frame_samples
    together = [
        [vad.push(clip[i : i + size]) for vad, clip in zip(streams, clips, strict=True)]
        for i in range(0, shortest - size + 1, size)
    ]
    assert np.allclose(np.array(together).T, np.array(alone))


@pytest.mark.parametrize("name", ENGINES)
def test_reset_forgets_everything(name: str) -> None:
    vad = load("vad", name, {}).open()
    clip = say("what time is it")
    first = probabilities(vad, clip)
    vad.reset()
    assert np.array_equal(probabilities(vad, clip), first)


def test_webrtc_probability_is_the_share_of_voiced_frames() -> None:
    vad = WebrtcVad(WebrtcSettings(smoothing_frames=4))
    verdicts = iter([True, False, True, True, True, True, False])
    vad.is_voiced = lambda pcm: next(verdicts)  # type: ignore[method-assign]
    frame = silence(20, ASR_RATE_HZ)
    assert [vad.push(frame) for _ in range(7)] == [0.25, 0.25, 0.5, 0.75, 0.75, 1.0, 0.75]


class FakeGate(WebrtcVad):
    """A gate that opens for any frame that is not zero."""

    def is_voiced(self, pcm: Pcm) -> bool:
        return bool(pcm.any())


class FakeSilero(SileroVad):
    """A network whose probability is the first sample of the frame in hundredths."""

    def __init__(self) -> None:
        self.received: list[Pcm] = []
        self.resets = 0

    def push(self, pcm: Pcm) -> float:
        self.received.append(pcm)
        return float(pcm[0]) / 100

    def reset(self) -> None:
        self.resets += 1


def test_the_gate_skips_silero_in_silence_and_replays_the_lead() -> None:
    silero = FakeSilero()
    vad = GatedVad(FakeGate(WebrtcSettings()), silero, hangover_samples=10 * 320)
    quiet, sound = np.zeros(320, np.int16), np.full(320, 20, np.int16)
    assert [vad.push(quiet) for _ in range(100)] == [0.0] * 100
    assert silero.received == []
    assert vad.push(sound) == 0.0
    lead = np.concatenate(silero.received)
    assert len(lead) == LEAD_SAMPLES
    assert not lead.any()
    assert vad.push(sound) == 0.2
    assert [vad.push(quiet) for _ in range(30)][-1] == 0.0
    received = sum(map(len, silero.received))
    assert LEAD_SAMPLES + 9 * 320 <= received <= LEAD_SAMPLES + 11 * 320
    assert silero.resets == 2


def test_the_gate_stays_open_while_silero_detects_speech() -> None:
    silero = FakeSilero()
    gate = FakeGate(WebrtcSettings())
    vad = GatedVad(gate, silero, hangover_samples=2 * 320)
    sound = np.full(320, 90, np.int16)
    vad.push(sound)
    vad.push(sound)
    gate.is_voiced = lambda pcm: False  # type: ignore[method-assign]
    assert {vad.push(sound) for _ in range(50)} == {0.9}


@pytest.mark.parametrize("name", NEURAL)
@pytest.mark.parametrize(
    ("clip", "least", "most"),
    [
        ("vad/pattern_zero.wav", 0, 0),
        ("vad/pattern_n.wav", 0, 0.02),
        ("vad/pattern_s.wav", 0.97, 1),
        ("vad/pattern_sn.wav", 0.55, 0.7),
        ("vad/pattern_nsn.wav", 0.4, 0.5),
        ("noise/koala_noise.wav", 0, 0.01),
        ("noise/speechbrain_noise1.wav", 0, 0.01),
        ("noise/speechbrain_noise2.wav", 0, 0.01),
        ("noise/room_tone_leopard_empty.wav", 0, 0.01),
    ],
)
def test_recordings_have_the_expected_share_of_speech(
    name: str, clip: str, least: float, most: float
) -> None:
    with wave.open(str(shared_data(*clip.split("/"))), "rb") as file:
        assert (file.getframerate(), file.getnchannels()) == (ASR_RATE_HZ, 1)
        pcm = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    share = np.mean(probabilities(load("vad", name, {}).open(), pcm) >= 0.5)
    assert least <= share <= most


def test_missing_weights_are_named() -> None:
    kind: EngineKind = "vad"
    with pytest.raises(EngineMissing, match=r"no weights at /nowhere/s.onnx"):
        load(kind, "silero", {"path": "/nowhere/s.onnx"})
