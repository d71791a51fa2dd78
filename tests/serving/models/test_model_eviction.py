"""Real models in real workers in the registry: loaded by use, evicted for another."""

import asyncio
from pathlib import Path

import psutil
import pytest

from engines.base import AsrItem
from engines.registry import available
from server.compose.choices import describe
from serving.asr.model import AsrWorkerPool, ServedRecogniser, add_recognisers
from serving.asr.scheduling import DecodePriority
from serving.models.registry import ModelRegistry, ModelsOfKind
from serving.placement.choose import EnginePreference, WhisperWeights, select_engine
from serving.placement.hardware import Hardware
from serving.placement.offers import LoadableModel, OfferInputs, asr_model_offers
from tests.pipeline.fakes import Counts, LoopClock
from tests.shared import ROOT
from tests.speech import say

pytestmark = pytest.mark.live

NANO = ROOT / "tests" / "fixtures" / "whisper-nano"
LIMIT_S = 120
WORDS = "turn on the kitchen lights"


async def _heard(models: ModelsOfKind[ServedRecogniser], name: str) -> str:
    model = models.get(name)
    assert model is not None
    item = AsrItem(f"item_{name}", say(WORDS, tail_ms=300), is_final=True)
    return (await model.decode(item, DecodePriority.FINAL)).text.lower().rstrip(".")


def _workers() -> int:
    """Returns the number of workers; the process that renders speech for the tests is not
    counted."""
    children = psutil.Process().children()
    return sum("engines.runtime.worker.main" in child.cmdline() for child in children)


def test_a_second_whisper_evicts_an_idle_one(tmp_path: Path) -> None:
    before = _workers()
    for name in ("faster-whisper-tiny", "mine"):
        (tmp_path / name).symlink_to(NANO)
    weights = [WhisperWeights(tmp_path / name, 8.0) for name in ("faster-whisper-tiny", "mine")]
    known = available("asr")
    wanted = EnginePreference("pocketsphinx", workers=1)
    hardware = Hardware(1, 4.0)
    machine = OfferInputs(
        hardware, known, wanted, select_engine("asr", wanted, known, weights, hardware)
    )
    metrics = Counts()

    async def start(offer: LoadableModel) -> AsrWorkerPool:
        return AsrWorkerPool(offer, LoopClock(), metrics)

    async def main() -> None:
        room = {"cpu": 450.0}  # PocketSphinx and one Whisper; there is no room for a third
        registry = ModelRegistry(room, LoopClock(), metrics, room_setting="asr.memory_mb")
        models = add_recognisers(
            registry, lambda: asr_model_offers(machine, weights), describe, start
        )
        async with asyncio.timeout(LIMIT_S), registry.running():
            await models.default.load()
            assert models.default.offer.name == "pocketsphinx"
            assert _workers() == before + 1
            assert await _heard(models, "tiny") == WORDS
            assert _workers() == before + 2
            assert await _heard(models, "mine") == WORDS
            assert _workers() == before + 2
            states = {state.offer.name: state for state in models.listing()}
            loaded = [name for name, state in states.items() if state.state == "loaded"]
            assert loaded == ["pocketsphinx", "mine"]
            assert 30 < states["mine"].memory_mb < 400
        assert _workers() == before

    asyncio.run(main())
    assert metrics.counts["earshot_asr_evictions"] == 1
