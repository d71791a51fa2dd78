"""A model that recognises speakers, in the registry: found by its file, loaded into a process at
its first use. Its weights are random."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from core.access.named_key import NamedKey
from core.audio import ASR_RATE_HZ
from core.conversation.speakers import HeardVoice, SpeakerProfile
from core.errors import EngineMissing
from engines.base.speaker import SpeakerItem
from serving.models.registry import ModelRegistry
from serving.speaker.model import SpeakerPriority, add_speaker_models
from serving.speaker.recognition import SpeakerRecognition, SpeakerSettings
from tests.conftest import require
from tests.engines.asr.sherpa.tone_models import have_sherpa
from tests.engines.speaker.buzz import buzz_pcm
from tests.engines.speaker.random_weights import write_random_model
from tests.engines.speaker.sherpa_models import write_voice_model
from tests.pipeline.fakes import Counts, LoopClock

pytestmark = pytest.mark.live


class NobodyKnown:
    """A directory without voices."""

    def count_people(self, key: NamedKey | None, model: str) -> int:
        return 0

    def profiles(
        self, key: NamedKey | None, model: str, *, taught_only: bool = False
    ) -> Sequence[SpeakerProfile]:
        return ()

    def wants_sample(self, speaker_id: str) -> bool:
        return False

    async def follow(self, speaker_id: str, voice: HeardVoice) -> None:
        raise AssertionError(speaker_id)


def _item(seconds: float) -> SpeakerItem:
    return SpeakerItem(buzz_pcm(seconds).astype("<i2").tobytes())


def test_a_worker_computes_the_vector_of_an_utterance(tmp_path: Path) -> None:
    write_random_model(tmp_path / "Resemblyzer")
    (tmp_path / ".other.partial").mkdir()
    registry = ModelRegistry({"cpu": 1000.0}, LoopClock(), Counts(), room_setting="asr.memory_mb")

    async def main() -> None:
        models = add_speaker_models(registry, str(tmp_path), LoopClock(), Counts())
        assert list(models) == ["Resemblyzer"]
        model = models.get("ge2e")
        assert model is not None
        assert (model.state, model.dimensions) == ("unloaded", 8)
        async with registry.running():
            result = await model.compute(_item(2), SpeakerPriority.TURN)
            nothing = await model.compute(_item(0.1), SpeakerPriority.TURN)
            assert model.state == "loaded"
            with SpeakerRecognition(models, NobodyKnown()).open_recording(None) as voices:
                vector = await voices.vector(buzz_pcm(2))
                assert await voices.vector(buzz_pcm(0.1)) is None
                assert list(voices.profiles) == []
                assert model.uses == 1  # it is held between two vectors
            assert model.uses == 0
        assert vector is not None
        assert vector.astype("<f4").tobytes() == result.vector
        assert len(result.vector) == 4 * 8
        assert result.quality.speech_ms >= 1800
        assert nothing.vector == b""

    asyncio.run(main())


def test_a_server_without_the_weights_has_no_such_model(tmp_path: Path) -> None:
    registry = ModelRegistry({"cpu": 1000.0}, LoopClock(), Counts(), room_setting="asr.memory_mb")

    async def main() -> None:
        models = add_speaker_models(registry, str(tmp_path / "none"), LoopClock(), Counts())
        assert list(models) == []
        assert models.get("ge2e") is None
        recognition = SpeakerRecognition(models, NobodyKnown())
        assert recognition.count_people(None) == 0
        with pytest.raises(EngineMissing, match="`earshot models pull ge2e` fetches one"):
            await recognition.listen(np.zeros(ASR_RATE_HZ, np.int16), SpeakerPriority.TURN)
        with pytest.raises(EngineMissing), recognition.open_recording(None):
            pytest.fail("it was opened")

    asyncio.run(main())


class AnnaKnown(NobodyKnown):
    """A directory with Anna's voice, of which the given model has learned a recording."""

    def __init__(self, model: str, vector: bytes) -> None:
        self.model = model
        self.profile = SpeakerProfile("spk_1", "Anna", np.frombuffer(vector, "<f4"))

    def count_people(self, key: NamedKey | None, model: str) -> int:
        return int(model == self.model)

    def profiles(
        self, key: NamedKey | None, model: str, *, taught_only: bool = False
    ) -> Sequence[SpeakerProfile]:
        return [self.profile] if model == self.model else []


def test_a_model_of_sherpa_runs_in_a_worker_and_knows_only_its_own_voices(tmp_path: Path) -> None:
    require(have_sherpa(), "sherpa-onnx and onnx are not installed")
    write_random_model(tmp_path / "Resemblyzer")
    write_voice_model(tmp_path / "campplus")
    registry = ModelRegistry({"cpu": 1000.0}, LoopClock(), Counts(), room_setting="asr.memory_mb")

    async def main() -> None:
        models = add_speaker_models(registry, str(tmp_path), LoopClock(), Counts())
        assert list(models) == ["Resemblyzer", "campplus"]
        assert SpeakerRecognition(models, NobodyKnown()).model_name == "Resemblyzer"
        chosen = SpeakerSettings("sherpa:campplus", guard_threshold=0.9)
        async with registry.running():
            recognition = SpeakerRecognition(models, NobodyKnown(), chosen)
            name, heard = await recognition.listen(buzz_pcm(3), SpeakerPriority.ENROLMENT)
            assert (name, recognition.model_name) == ("campplus", "campplus")
            thresholds = recognition.thresholds
            assert (thresholds.known, thresholds.guard) == (0.6, 0.9)
            recognition = SpeakerRecognition(models, AnnaKnown(name, heard.vector), chosen)
            assert recognition.count_people(None) == 1
            match, _ = await recognition.compare(buzz_pcm(2), None, SpeakerPriority.TURN)
            assert match is not None
            assert (match.name, match.score > 0.9) == ("Anna", True)
            other = buzz_pcm(2, pitch_hz=300)
            assert (await recognition.compare(other, None, SpeakerPriority.TURN))[0] is None
            by_another = AnnaKnown("Resemblyzer", heard.vector)
            recognition = SpeakerRecognition(models, by_another, chosen)
            assert recognition.count_people(None) == 0
            assert (await recognition.compare(buzz_pcm(2), None, SpeakerPriority.TURN))[0] is None

    asyncio.run(main())


def test_a_chosen_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    write_random_model(tmp_path / "Resemblyzer")
    registry = ModelRegistry({"cpu": 1000.0}, LoopClock(), Counts(), room_setting="asr.memory_mb")

    async def main() -> None:
        models = add_speaker_models(registry, str(tmp_path), LoopClock(), Counts())
        recognition = SpeakerRecognition(models, NobodyKnown(), SpeakerSettings("sherpa:none"))
        assert recognition.count_people(None) == 0
        assert recognition.model_name is None
        with pytest.raises(EngineMissing, match="'sherpa:none' is not in the models folder"):
            await recognition.listen(buzz_pcm(3), SpeakerPriority.ENROLMENT)

    asyncio.run(main())
