"""Voices, language models and models for texts: in a child process, as replicas in this process,
and as Ray Serve deploys them in its local testing mode."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from core.errors import ConfigError, EngineCrashed, EngineError
from engines.base import TtsInfo
from engines.base.text import EmbedResult
from engines.registry import EngineKind, load, worker_profile
from server.compose.cluster import ClusterWorkers, check_pools, uses_cluster
from server.config import Config, LlmConfig, ModelsConfig, TtsConfig
from serving.cluster.deployment import RAY_LOG, RayCluster, ReplicaHandle, ReplicaLost
from serving.cluster.engine import ReplicatedEngine
from serving.model_host.source import OwnWorkers, WorkerSource
from serving.models.registry import ModelRegistry
from serving.placement.choose import EngineSelection
from serving.text.model import (
    EMBED_WARM_UP,
    TextPriority,
    TextWorkerPool,
    add_text_models,
    find_text_models,
)
from serving.workers.process_llm import ProcessLlm
from serving.workers.process_tts import ProcessTts
from tests.engines.embed.tiny_model import write_embedder
from tests.pipeline.fakes import Counts, LoopClock
from tests.serving.cluster import stream_scenarios
from tests.serving.cluster.in_process import InProcessCluster
from tests.serving.cluster.stream_scenarios import LLM, VOICE
from tests.serving.workers.odd_voice import SENTENCE

pytestmark = pytest.mark.live

LIMIT_S = 60
EVERYTHING_ON_RAY = Config(
    llm=LlmConfig(pool="ray"), tts=TtsConfig(pool="ray"), models=ModelsConfig(pool="ray")
)


def in_a_process() -> OwnWorkers:
    return OwnWorkers(Counts())


def in_this_process() -> ClusterWorkers:
    return ClusterWorkers(InProcessCluster(), EVERYTHING_ON_RAY, in_a_process(), Counts())


def on_ray() -> ClusterWorkers:
    pytest.importorskip("ray", reason="Ray is not installed: the extra scale")
    cluster = RayCluster(is_local=True)
    return ClusterWorkers(cluster, EVERYTHING_ON_RAY, in_a_process(), Counts())


SOURCES = pytest.mark.parametrize("create", [in_a_process, in_this_process, on_ray])


@asynccontextmanager
async def voice(workers: WorkerSource) -> AsyncIterator[ProcessTts]:
    profile = worker_profile("tts", VOICE, {})
    assert profile is not None
    process = workers.process("tts", VOICE, {}, TtsInfo, profile)
    async with process.running():
        yield ProcessTts(process, await process.ready(), Counts())


@asynccontextmanager
async def language_model(workers: WorkerSource, **options: Any) -> AsyncIterator[ProcessLlm]:
    profile = worker_profile("llm", LLM, options)
    assert profile is not None
    process = workers.process("llm", LLM, options, type(None), profile, 2)
    llm = ProcessLlm(process, load("llm", LLM, options))
    async with llm.running():
        yield llm


@SOURCES
@pytest.mark.parametrize(
    "scenario",
    [
        stream_scenarios.a_voice_speaks_and_keeps_its_errors,
        stream_scenarios.an_abandoned_clause_frees_the_voice,
        stream_scenarios.a_deleted_voice_is_forgotten,
    ],
)
def test_contract_of_a_voice(
    create: Callable[[], WorkerSource], scenario: Callable[[ProcessTts], Awaitable[None]]
) -> None:
    async def main() -> None:
        async with asyncio.timeout(LIMIT_S), voice(create()) as tts:
            await scenario(tts)

    asyncio.run(main())


@SOURCES
def test_contract_of_a_language_model(create: Callable[[], WorkerSource]) -> None:
    async def main() -> None:
        async with asyncio.timeout(LIMIT_S), language_model(create()) as llm:
            await stream_scenarios.an_abandoned_answer_frees_the_model(llm)

    asyncio.run(main())


@SOURCES
def test_a_language_model_that_does_not_load_gives_the_reason(
    create: Callable[[], WorkerSource],
) -> None:
    async def main() -> None:
        async with (
            asyncio.timeout(LIMIT_S),
            language_model(create(), has_weights=False) as llm,
        ):
            with pytest.raises(EngineError, match="no chat template"):
                await llm.warm("en", ())

    asyncio.run(main())


@SOURCES
def test_contract_of_a_model_for_texts(create: Callable[[], WorkerSource], tmp_path: Path) -> None:
    write_embedder(tmp_path / "tiny")
    (offer,) = find_text_models(tmp_path, "embed")
    source = create()
    elsewhere = source if isinstance(source, ClusterWorkers) else None

    async def main() -> None:
        pool = TextWorkerPool(
            "embed", offer, EMBED_WARM_UP, EmbedResult, LoopClock(), Counts(), elsewhere
        )
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
            task = tasks.create_task(pool.run())
            await pool.ready()
            await stream_scenarios.texts_get_their_vectors(pool)
            task.cancel()

    asyncio.run(main())


class LosingHandle(ReplicaHandle):
    """A handle whose streams lose their replica after some parts, the first ones before any."""

    def __init__(self, handle: ReplicaHandle, parts: list[int]) -> None:
        super().__init__(None, ())
        self._real, self.parts = handle, parts

    async def stream(self, request: bytes, limit_s: float) -> AsyncGenerator[bytes, None]:
        left = self.parts.pop(0) if self.parts else 1000
        async with aclosing(self._real.stream(request, limit_s)) as replies:
            async for reply in replies:
                if left == 0:
                    raise ReplicaLost("the actor died")
                left -= 1
                yield reply


@pytest.mark.parametrize(("parts", "spoken"), [([0, 0], True), ([0, 2], False), ([0] * 3, False)])
def test_a_clause_is_sent_again_only_while_nothing_was_heard(
    parts: list[int], spoken: bool
) -> None:
    async def main() -> None:
        async with asyncio.timeout(LIMIT_S), voice(in_this_process()) as tts:
            engine = tts._process
            assert isinstance(engine, ReplicatedEngine)
            assert engine._handle is not None
            engine._handle = LosingHandle(engine._handle, list(parts))
            if spoken:
                assert await stream_scenarios.spoken(tts, SENTENCE) == [4, 2, 3, 5]
            else:
                with pytest.raises(EngineCrashed, match="its replica was lost"):
                    await stream_scenarios.spoken(tts, SENTENCE)

    asyncio.run(main())


def test_an_engine_without_a_worker_cannot_run_on_the_cluster() -> None:
    choices: dict[EngineKind, EngineSelection] = {
        "llm": EngineSelection("llm", "intents", {}, ""),
        "tts": EngineSelection("tts", VOICE, {}, ""),
    }
    assert uses_cluster(EVERYTHING_ON_RAY)
    assert not uses_cluster(Config())
    check_pools(Config(tts=TtsConfig(pool="ray")), choices)
    with pytest.raises(ConfigError, match=r"llm\.pool: the engine intents has no worker"):
        check_pools(EVERYTHING_ON_RAY, choices)


def test_a_model_on_the_cluster_takes_no_memory_here(tmp_path: Path) -> None:
    write_embedder(tmp_path / "tiny")
    (offer,) = find_text_models(tmp_path, "embed")
    assert offer.memory_mb

    async def main() -> None:
        full = {"cpu": 0.0}
        registry = ModelRegistry(full, LoopClock(), Counts(), room_setting="asr.memory_mb")
        embedders, _, _ = add_text_models(
            registry, str(tmp_path), LoopClock(), Counts(), in_this_process()
        )
        model = embedders.get("tiny")
        assert model is not None
        async with asyncio.timeout(LIMIT_S), registry.running():
            result = await model.compute(EMBED_WARM_UP, TextPriority.SINGLE)
            assert result.vectors
            assert model.memory_mb == 0
        assert "on the cluster" in model.offer.why

    asyncio.run(main())


def test_lines_of_ray_are_in_our_log_only(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    rays = logging.getLogger("tests.ray")
    rays.addHandler(logging.StreamHandler())
    rays.propagate = False
    rays.addFilter(RAY_LOG)
    with caplog.at_level(logging.INFO):
        rays.info("Started Serve")
        rays.warning("a replica is slow")
    assert [record.getMessage() for record in caplog.records] == ["ray: a replica is slow"]
    assert capfd.readouterr().err == ""
