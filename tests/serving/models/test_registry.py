"""Models by name: loaded by use, shared, loaded again. In virtual time."""

import asyncio
from dataclasses import replace

import pytest

from core.errors import EngineError, EngineMissing
from serving.models.model import BACKOFF_S
from serving.models.registry import REFRESH_S
from tests.loop import run_virtual
from tests.serving.models.fake_models import (
    DECODE_S,
    LOAD_S,
    REQUEST,
    Recognisers,
    World,
    offer,
    say,
)


def test_only_the_default_is_loaded_and_tested_at_start() -> None:
    world = World()

    async def scenario(models: Recognisers) -> None:
        assert list(models) == ["a", "b", "c", "d"]
        assert models.default.is_ready
        assert world.loaded == ["a"]
        assert world.lives[0].decoded == 1
        assert await say(models, "a") == "a"

    assert world.run(scenario) == LOAD_S + 2 * DECODE_S
    assert world.metrics.counts["earshot_asr_models_loaded"] == 0
    assert world.metrics.observed["earshot_asr_load_seconds"] == [LOAD_S + DECODE_S]


@pytest.mark.parametrize(("breaks", "message"), [("load", "no weights"), ("decode", "first use")])
def test_a_default_that_fails_fails_the_start(breaks: str, message: str) -> None:
    world = World()
    world.breaks["a"] = breaks

    async def scenario(_: Recognisers) -> None:
        pytest.fail("it started")

    with pytest.raises(BaseExceptionGroup) as caught:
        world.run(scenario)
    assert caught.group_contains(EngineError, match=message)


def test_the_first_use_loads_a_model_while_others_are_served() -> None:
    world = World()

    async def scenario(models: Recognisers) -> None:
        async with asyncio.TaskGroup() as tasks:
            began = asyncio.get_running_loop().time()
            slow = tasks.create_task(say(models, "b"))
            await asyncio.sleep(0)
            assert await say(models, "a") == "a"
            assert asyncio.get_running_loop().time() == began + DECODE_S
            assert not slow.done()
        assert slow.result() == "b"

    world.run(scenario)
    assert world.loaded == ["a", "b"]


def test_simultaneous_users_share_one_load_even_if_one_gives_up() -> None:
    world = World()

    async def scenario(models: Recognisers) -> None:
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(say(models, "b"))
            await asyncio.sleep(1)
            others = [tasks.create_task(say(models, "b")) for _ in range(3)]
            await asyncio.sleep(0)
            first.cancel()
        assert [one.result() for one in others] == ["b"] * 3

    world.run(scenario)
    assert world.loaded == ["a", "b"]


def test_a_model_does_not_log_under_the_request_that_loaded_it() -> None:
    world = World()

    async def scenario(models: Recognisers) -> None:
        REQUEST.set("req_1")
        await say(models, "b")

    world.run(scenario)
    assert [served.request for served in world.lives] == ["", ""]


def test_an_abandoned_load_is_ready_for_the_next_request() -> None:
    world = World()

    async def scenario(models: Recognisers) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await say(models, "b")
        await asyncio.sleep(LOAD_S)
        began = asyncio.get_running_loop().time()
        assert await say(models, "b") == "b"
        assert asyncio.get_running_loop().time() - began == DECODE_S

    world.run(scenario)


def test_a_model_that_does_not_load_is_tried_again_after_a_while() -> None:
    world = World()
    world.breaks["b"] = "load"

    async def scenario(models: Recognisers) -> None:
        with pytest.raises(EngineMissing, match="no weights"):
            await say(models, "b")
        with pytest.raises(EngineMissing, match=r"no weights; tried again in 2 s") as again:
            await say(models, "b")
        assert str(again.value).count("asr engine") == 1
        assert world.loaded == ["a", "b"]
        await asyncio.sleep(BACKOFF_S[0])
        with pytest.raises(EngineMissing):
            await say(models, "b")
        assert world.loaded == ["a", "b", "b"]
        states = {state.offer.name: state for state in models.listing()}
        assert "no weights" in states["b"].problem
        world.breaks.clear()
        await asyncio.sleep(BACKOFF_S[1])
        assert await say(models, "b") == "b"
        assert await say(models, "a") == "a"

    world.run(scenario)


def test_a_model_that_cannot_decode_is_not_served() -> None:
    world = World()
    world.breaks["b"] = "decode"

    async def scenario(models: Recognisers) -> None:
        with pytest.raises(EngineError, match=r"its first use fails: .*bad kernels"):
            await say(models, "b")
        model = models.get("b")
        assert model is not None
        with model.hold():  # in the back-off only a decode raises
            assert world.alive == ["a"]

    world.run(scenario)


def test_a_bug_in_serving_one_model_does_not_affect_others() -> None:
    world = World()
    world.breaks["b"] = "bug"

    async def scenario(models: Recognisers) -> None:
        with pytest.raises(EngineError, match="nobody expected this"):
            await say(models, "b")
        assert await say(models, "a") == "a"
        assert world.metrics.counts["earshot_errors"] == 1

    world.run(scenario)


def test_a_model_falls_back_from_a_failing_gpu_to_the_processor() -> None:
    on_cpu = replace(offer("b"), why="on the processor")
    world = World(offer("a"), replace(offer("b", 100, "cuda:0"), fallback=on_cpu))
    world.fails_on = "cuda:0"

    async def scenario(models: Recognisers) -> None:
        assert await say(models, "b") == "b"
        states = {state.offer.name: state for state in models.listing()}
        assert states["b"].offer.why == "on the processor"
        assert states["b"].offer.memory_mb == {"cpu": 100}

    world.run(scenario)
    assert world.loaded == ["a", "b", "b"]


def test_a_default_that_fails_on_the_gpu_keeps_its_names() -> None:
    on_gpu = replace(offer("a", 100, "cuda:0", "a1", "default"), fallback=offer("a"))
    world = World(on_gpu)
    world.fails_on = "cuda:0"

    async def scenario(models: Recognisers) -> None:
        await asyncio.sleep(REFRESH_S)
        assert models.get("nobody") is None  # reads the folder and all names again
        assert models.get("default") is models.get("a1") is models.default

    world.run(scenario)


def test_a_repaired_or_replaced_model_is_read_again() -> None:
    world = World()
    world.breaks["b"] = "describe"

    async def scenario(models: Recognisers) -> None:
        models.read_all()
        assert list(models) == ["a", "c", "d"]
        before = models.get("d")
        world.breaks.clear()
        world.offers[2] = offer("c", 120)
        await asyncio.sleep(REFRESH_S)
        models.listing()
        assert list(models) == ["a", "b", "c", "d"]
        assert await say(models, "b") == "b"
        replaced = models.get("c")
        assert replaced is not None
        assert replaced.offer.memory_mb == {"cpu": 120}
        assert models.get("d") is before

    world.run(scenario)


def test_a_model_without_a_description_is_listed_with_its_reason_but_not_offered() -> None:
    world = World()
    world.breaks["b"] = "describe"

    async def scenario(models: Recognisers) -> None:
        models.read_all()
        assert list(models) == ["a", "c", "d"]
        states = {state.offer.name: state for state in models.listing()}
        assert "no config.json" in states["b"].problem
        assert states["a"].languages == ("en", "de")
        model = models.get("b")
        assert model is not None
        with pytest.raises(EngineError, match=r"no config\.json"):
            _ = model.info
        assert sorted(world.described) == ["b", "c", "d"]  # each once; the default described itself

    world.run(scenario)


def test_models_are_found_by_names_aliases_and_names_of_the_catalogue() -> None:
    tiny = offer("faster-whisper-tiny", 1, "cpu", "tiny", "default")
    mine = offer("large", 1)
    v2 = offer("faster-whisper-large-v2", 1, "cpu", "large-v2", "large")
    world = World(tiny, mine, v2)

    async def scenario(models: Recognisers) -> None:
        def called(name: str) -> str | None:
            model = models.get(name)
            return model.offer.name if model else None

        for name in ("faster-whisper-tiny", "tiny", "default", "openai/whisper-tiny"):
            assert called(name) == "faster-whisper-tiny", name
        assert called("large") == "large"  # its own name wins over another's alias
        assert called("large-v2") == "faster-whisper-large-v2"
        assert called("base") is None

    world.run(scenario)


def test_a_pulled_model_is_found_and_a_removed_one_is_gone() -> None:
    world = World()

    async def scenario(models: Recognisers) -> None:
        world.offers = [world.offers[0], world.offers[2], offer("new", 100, "cpu", "n")]
        await asyncio.sleep(REFRESH_S)
        assert await say(models, "n") == "new"
        assert list(models) == ["a", "c", "new"]
        assert models.get("b") is None

    world.run(scenario)


def test_a_removed_model_is_gone_at_once_after_expire() -> None:
    world = World()

    async def scenario(models: Recognisers) -> None:
        world.offers = [world.offers[0], world.offers[2]]
        assert models.get("b") is not None, "the folder is not searched for each request"
        models.expire()
        assert models.get("b") is None

    world.run(scenario)


def test_the_end_of_the_server_ends_a_load() -> None:
    world = World()
    waiting: list[asyncio.Task[str]] = []

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks, world.running() as models:
            waiting.append(tasks.create_task(_refused(models)))
            await asyncio.sleep(1)

    async def _refused(models: Recognisers) -> str:
        with pytest.raises(EngineError, match="the server is stopping") as caught:
            await say(models, "b")
        return caught.value.code

    assert run_virtual(main()) == LOAD_S + DECODE_S + 1
    assert waiting[0].result() == "engine_crashed"


def test_nothing_is_loaded_while_the_server_ends() -> None:
    world = World()
    world.ends_in_s = 1.0

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks, world.running() as models:
            tasks.create_task(_late(models))

    async def _late(models: Recognisers) -> None:
        await asyncio.sleep(world.ends_in_s / 2)
        with pytest.raises(EngineError, match="the server is stopping"):
            await say(models, "b")

    run_virtual(main())
    assert world.loaded == ["a"]
