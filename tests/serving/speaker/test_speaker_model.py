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
from serving.speaker.recognition import SpeakerRecognition
from tests.engines.speaker.buzz import buzz_pcm
from tests.engines.speaker.random_weights import write_random_model
from tests.pipeline.fakes import Counts, LoopClock

pytestmark = pytest.mark.live


class NobodyKnown:
    """A directory without voices."""

    def count_people(self, key: NamedKey | None) -> int:
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
