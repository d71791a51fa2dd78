"""microWakeWord: its words, its options, and the absence of false detections."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples, silence
from core.errors import ConfigError, EngineMissing
from engines.base.wake import WakeWordDetector
from engines.registry import available, load
from engines.wake.micro import REPEAT_PAUSE_SAMPLES, MicroWakeEngine, Settings, create
from media.files.decode import decode_file
from serving.placement.choose import EnginePreference, select_engine
from serving.placement.hardware import Hardware
from tests.shared import shared_data
from tests.speech import say

pytestmark = pytest.mark.live

if not {one.name: one.installed for one in available("wake")}["micro"]:
    pytest.skip("pymicro-wakeword has no wheel for this machine", allow_module_level=True)

NABU = say("okay nabu", lead_ms=500, tail_ms=600)


@pytest.fixture(scope="module")
def engine() -> MicroWakeEngine:
    return create(Settings())


def count(stream: WakeWordDetector, pcm: Pcm) -> int:
    return len(stream.push(pcm))


def test_words_have_phrases_and_languages(engine: MicroWakeEngine) -> None:
    words = {word.name: word for word in engine.words}
    assert words.keys() >= {"alexa", "hey_jarvis", "hey_mycroft", "okay_nabu"}
    assert words["okay_nabu"].phrase == "Okay Nabu"
    assert {"en", "de", "fr", "es"} <= set(words["okay_nabu"].languages)


@pytest.mark.parametrize(
    ("name", "voice"),
    [
        ("okay_nabu", "en-us"),
        ("okay_nabu", "en-gb"),
        ("okay_nabu", "en-us+m3"),
        ("alexa", "en-us"),
        ("alexa", "en-us+f3"),
        ("hey_mycroft", "en-gb"),
    ],
)
def test_words_of_synthetic_voices_are_detected(
    engine: MicroWakeEngine, name: str, voice: str
) -> None:
    """hey_jarvis is missing here, because its network does not detect eSpeak's voices."""
    clip = say(name.replace("_", " "), voice, lead_ms=500, tail_ms=600)
    assert [one.name for one in engine.open([name]).push(clip)] == [name]


def test_a_word_at_the_very_beginning_is_detected(engine: MicroWakeEngine) -> None:
    assert count(engine.open(["alexa"]), say("alexa", tail_ms=600)) == 1


def test_a_word_is_detected_once_until_it_is_repeated(engine: MicroWakeEngine) -> None:
    stream = engine.open(["okay_nabu"])
    first, second = stream.push(np.concatenate([NABU, NABU]))
    assert second.position - first.position >= REPEAT_PAUSE_SAMPLES


def test_the_threshold_is_configurable() -> None:
    low, high = (create(Settings(threshold=value)) for value in (0.5, 0.999))
    faint = say("okay nabu", "en-us+f3", lead_ms=500, tail_ms=600)  # 0.72; 0.85 is needed
    assert count(low.open(["okay_nabu"]), faint) == 1
    assert count(high.open(["okay_nabu"]), NABU) == 0


def test_models_of_a_folder_are_added(engine: MicroWakeEngine, tmp_path: Path) -> None:
    bundled = engine._models["alexa"].config
    shutil.copy(bundled.with_suffix(".tflite"), tmp_path / "computer.tflite")
    config = json.loads(bundled.read_text()) | {
        "wake_word": "Computer",
        "model": "computer.tflite",
    }
    (tmp_path / "computer.json").write_text(json.dumps(config))
    more = load("wake", "micro", {"folder": str(tmp_path)})
    assert {word.name: word.phrase for word in more.words}["computer"] == "Computer"
    clip = say("alexa", lead_ms=500, tail_ms=600)
    assert [one.name for one in more.open(["computer"]).push(clip)] == ["computer"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not a microWakeWord model"),
        ("[]", "is not a microWakeWord model"),
        ('{"wake_word": "X", "model": "x.tflite"}', "`micro`"),
        (
            json.dumps(
                {
                    "wake_word": "X",
                    "model": "x.tflite",
                    "micro": {"sliding_window_size": 5.5, "probability_cutoff": 0.9},
                }
            ),
            "sliding_window_size",
        ),
        (
            json.dumps(
                {
                    "wake_word": "X",
                    "model": "x.tflite",
                    "micro": {"sliding_window_size": 5, "probability_cutoff": 0.9},
                }
            ),
            "x.tflite, which does not exist",
        ),
    ],
)
def test_a_broken_model_is_named(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(ConfigError, match=r"x\.json") as caught:
        load("wake", "micro", {"folder": str(tmp_path)})
    assert message in str(caught.value)


@pytest.mark.parametrize("share", [0, 0.5])
def test_a_damaged_network_is_named(
    engine: MicroWakeEngine, tmp_path: Path, share: float, capfd: pytest.CaptureFixture[str]
) -> None:
    bundled = engine._models["alexa"].config
    network = bundled.with_suffix(".tflite").read_bytes()
    (tmp_path / "alexa.tflite").write_bytes(network[: round(share * len(network))])
    shutil.copy(bundled, tmp_path / "alexa.json")
    with pytest.raises(ConfigError, match=r"alexa\.tflite is damaged"):
        load("wake", "micro", {"folder": str(tmp_path)})
    capfd.readouterr()  # TensorFlow Lite prints complaints, too


@pytest.mark.parametrize("library", [None, b"made for another machine"])
def test_without_tensorflow_lite_the_engine_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: bytes | None
) -> None:
    """A C library that is too old has the same effect: `auto` chooses another engine, and `doctor`
    gives the reason."""
    (tmp_path / "models").mkdir()
    (tmp_path / "lib").mkdir()
    if library is not None:
        (tmp_path / "lib" / "libtensorflowlite_c.so").write_bytes(library)
    monkeypatch.setattr("engines.wake.micro._package_folder", lambda: tmp_path)
    with pytest.raises(EngineMissing, match=r"it does not run here: .*(too short|no TensorFlow)"):
        load("wake", "micro", {})
    micro, none, _ = available("wake")
    assert not micro.installed
    assert micro.reason.startswith("installed, but does not run here: ")
    assert (
        select_engine("wake", EnginePreference(), (micro, none), (), Hardware(2, 4.0)).name
        == "none"
    )


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere does not exist"):
        load("wake", "micro", {"folder": str(tmp_path / "nowhere")})


def test_noise_of_any_loudness_gives_no_detection(engine: MicroWakeEngine) -> None:
    rng = np.random.default_rng(1)
    stream = engine.open([word.name for word in engine.words])
    for level in (30, 1000, 30_000):
        noise = rng.uniform(-level, level, ms_to_samples(2000, ASR_RATE_HZ)).astype(np.int16)
        assert count(stream, noise) == 0
        assert count(stream, silence(500, ASR_RATE_HZ)) == 0


def recorded(folder: str) -> Iterator[tuple[str, Pcm]]:
    for file in sorted(shared_data(folder).rglob("*")):
        if file.suffix in (".wav", ".flac", ".ogg"):
            yield file.stem, decode_file(file, ASR_RATE_HZ)


def test_words_of_recorded_voices_are_detected(engine: MicroWakeEngine) -> None:
    """Each word was recorded three times; other words must not be detected."""
    for name, pcm in recorded("wakeword-clips"):
        stream = engine.open([word.name for word in engine.words])
        found = {one.name for one in stream.push(np.concatenate([pcm, np.zeros(9600, np.int16)]))}
        assert found == {word.name for word in engine.words if name.startswith(word.name)}, name


@pytest.mark.parametrize("folder", ["noise", "music"])
def test_recordings_of_noise_and_music_give_no_detection(
    engine: MicroWakeEngine, folder: str
) -> None:
    """Real sound, 2 and 6 minutes: no false accept."""
    stream = engine.open([word.name for word in engine.words])
    found = {name: stream.push(pcm[: 60 * ASR_RATE_HZ]) for name, pcm in recorded(folder)}
    assert len(found) > 3
    assert {name: config for name, config in found.items() if config} == {}
