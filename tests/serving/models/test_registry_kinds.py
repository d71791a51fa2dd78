"""Models of two kinds in one registry: found by kind and name, sharing one memory budget."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from core.errors import Conflict, EngineError, EngineMissing
from serving.models.model import ModelLoader, ServedModel
from serving.models.registry import ModelsOfKind
from serving.placement.offers import LoadableModel
from tests.loop import run_virtual
from tests.serving.models.fake_models import DECODE_S, Recognisers, World, offer, say

pytestmark = pytest.mark.many

LOAD_S = 2.0


@dataclass(frozen=True)
class VoiceInfo:
    voices: tuple[str, ...]


@dataclass
class LoadedVoice:
    """A voice in memory."""

    name: str
    is_ready: bool = False
    is_warm: bool = False
    waiting: int = 0

    async def run(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.is_ready = False

    async def ready(self) -> VoiceInfo:
        await asyncio.sleep(LOAD_S)
        if self.name == "broken":
            raise EngineMissing("tts", "fake", "no weights")
        self.is_ready = True
        return VoiceInfo((f"{self.name}_f",))

    async def warm_up(self) -> None:
        self.is_warm = True

    def resident_mb(self) -> float:
        return 0.0


class Voice(ServedModel[VoiceInfo, LoadedVoice]):
    async def speak(self, text: str) -> int:
        with self.in_use():
            loaded = await self.load()
            assert loaded.is_warm
            return len(text)


Voices = ModelsOfKind[Voice]


@asynccontextmanager
async def house(world: World, *voices: LoadableModel) -> AsyncIterator[tuple[Recognisers, Voices]]:
    async def start(of: LoadableModel) -> LoadedVoice:
        return LoadedVoice(of.name)

    loader: ModelLoader[VoiceInfo, LoadedVoice] = ModelLoader(
        "tts", lambda of: VoiceInfo((f"{of.name}_f",)), start
    )
    async with world.running() as recognisers:
        registry = world.registry
        yield recognisers, registry.add("tts", lambda: voices, lambda o: Voice(o, loader, registry))


def test_a_name_may_stand_for_a_model_of_each_kind() -> None:
    world = World(offer("small", 50))

    async def main() -> None:
        async with house(world, offer("small", 50), offer("large", 50)) as (recognisers, voices):
            voice, recogniser = voices.get("small"), recognisers.get("small")
            assert world.registry.get("tts", "small") is voice
            assert world.registry.get("asr", "small") is recogniser
            assert world.registry.get("asr", "large") is None
            assert world.registry.get("llm", "small") is None
            assert list(voices) == ["small", "large"]
            assert voice is not None
            assert await voice.speak("hello") == 5
            assert await say(recognisers, "small") == "small"
            assert world.metrics.counts["earshot_tts_models_loaded"] == 1
            assert world.metrics.counts["earshot_asr_models_loaded"] == 1
            assert world.metrics.observed["earshot_tts_load_seconds"] == [LOAD_S]

    run_virtual(main())


def test_a_model_of_one_kind_can_evict_one_of_another_kind() -> None:
    world = World(offer("a", 50), offer("b", 150), cpu_mb=250)

    async def main() -> None:
        async with house(world, offer("v", 20), offer("w", 120)) as (recognisers, voices):
            await say(recognisers, "b")
            small, large = voices.get("v"), voices.get("w")
            assert small is not None
            assert large is not None
            await small.speak("fits")
            assert world.alive == ["a", "b"]
            await large.speak("does not")
            assert world.alive == ["a"]
            assert (small.is_ready, large.is_ready) == (True, True)
            assert await say(recognisers, "b") == "b"  # the other way round
            assert (small.is_ready, large.is_ready) == (True, False)

    run_virtual(main())
    assert world.metrics.counts["earshot_asr_evictions"] == 1
    assert world.metrics.counts["earshot_tts_evictions"] == 1


def test_a_hundred_loads_and_unloads_between_requests_fail_none() -> None:
    """The kind has no default model, so any of its models may be unloaded."""
    world = World(offer("a", 50))
    loads = 100
    answers: list[int] = []
    refusals: list[str] = []

    async def main() -> None:
        loader: ModelLoader[VoiceInfo, LoadedVoice] = ModelLoader(
            "tts", lambda of: VoiceInfo(()), lambda of: started(LoadedVoice(of.name))
        )
        async with world.running():
            registry = world.registry
            voices: Voices = registry.add(
                "tts", lambda: [offer("v")], lambda o: Voice(o, loader, registry), is_optional=True
            )
            voice = voices.get("v")
            assert voice is not None

            async def talk() -> None:
                while True:
                    answers.append(await voice.speak("hello"))
                    await asyncio.sleep(0.01)

            async with asyncio.TaskGroup() as tasks:
                talkers = [tasks.create_task(talk()) for _ in range(3)]
                observed = world.metrics.observed
                while len(observed.get("earshot_tts_load_seconds", ())) < loads:
                    await asyncio.sleep(0.007)
                    try:
                        await registry.unload(voice)
                    except Conflict as busy:
                        refusals.append(busy.code)
                for talker in talkers:
                    talker.cancel()
            await voice.load()
            await registry.unload(voice)
            assert (voice.state, voice.uses, voice.memory_mb) == ("unloaded", 0, 0.0)
            assert world.metrics.counts["earshot_tts_models_loaded"] == 0

    run_virtual(main())
    assert set(answers) == {5}
    assert len(answers) >= loads
    assert set(refusals) == {"model_busy"}


async def started(voice: LoadedVoice) -> LoadedVoice:
    return voice


def test_errors_name_the_kind() -> None:
    world = World(offer("a", 50))

    async def main() -> None:
        async with house(world, offer("v", 20), offer("broken", 20), offer("huge", 500)) as (_, it):
            broken, huge = it.get("broken"), it.get("huge")
            assert broken is not None
            assert huge is not None
            with pytest.raises(EngineError, match="tts engine 'fake': no weights"):
                await broken.speak("never")
            with pytest.raises(EngineError, match="tts engine 'huge': needs about 500 MB"):
                await huge.speak("never")
            assert {one.offer.name: bool(one.problem) for one in it.listing()} == {
                "v": False,
                "broken": True,
                "huge": True,
            }

    assert run_virtual(main()) > DECODE_S
