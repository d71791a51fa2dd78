"""Models that share the memory: eviction and waiting, in virtual time."""

import asyncio

import pytest

from core.errors import Conflict, EngineError, OverloadedError
from serving.asr.model import ServedRecogniser
from serving.models.memory_budget import ROOM_WAIT_S
from tests.serving.models.fake_models import DECODE_S, LOAD_S, Recognisers, World, offer, say


def test_the_model_idle_longest_is_evicted_but_never_the_default() -> None:
    world = World(cpu_mb=350)

    async def scenario(models: Recognisers) -> None:
        for name in "bcb":
            await say(models, name)
            await asyncio.sleep(1)
        assert await say(models, "d") == "d"
        assert world.alive == ["a", "b", "d"]
        assert await say(models, "c") == "c"
        assert world.alive == ["a", "c", "d"]
        assert world.metrics.counts["earshot_asr_models_loaded"] == 3

    world.run(scenario)
    assert world.metrics.counts["earshot_asr_evictions"] == 2


def test_a_model_in_use_is_waited_for() -> None:
    world = World()

    async def scenario(models: Recognisers) -> None:
        await say(models, "b")
        async with asyncio.TaskGroup() as tasks:
            busy = tasks.create_task(say(models, "b"))
            await asyncio.sleep(0)
            other = tasks.create_task(say(models, "c"))
        assert (busy.result(), other.result()) == ("b", "c")
        assert world.alive == ["a", "c"]

    world.run(scenario)


def test_a_model_held_by_a_session_is_loaded_ahead_and_not_evicted() -> None:
    world = World()

    async def scenario(models: Recognisers) -> None:
        held = models.get("b")
        assert held is not None
        with held.hold():
            await asyncio.sleep(LOAD_S + DECODE_S + 1)
            assert held.is_ready
            began = asyncio.get_running_loop().time()
            with pytest.raises(
                OverloadedError, match="not enough memory for c in addition to a, b"
            ) as refused:
                await say(models, "c")
            assert asyncio.get_running_loop().time() - began == ROOM_WAIT_S
            assert refused.value.retry_after_s > 0
            assert refused.value.code == "engine_busy"
            async with asyncio.TaskGroup() as tasks:
                patient = tasks.create_task(say(models, "c"))
                await asyncio.sleep(1)
                assert world.alive == ["a", "b"]
                patient.cancel()
        assert await say(models, "c") == "c"
        assert world.alive == ["a", "c"]

    world.run(scenario)


def test_a_session_that_ends_makes_room_for_a_waiting_request() -> None:
    world = World()

    async def scenario(models: Recognisers) -> None:
        held = models.get("b")
        assert held is not None
        async with asyncio.TaskGroup() as tasks:
            with held.hold():
                await asyncio.sleep(LOAD_S + DECODE_S + 1)
                patient = tasks.create_task(say(models, "c"))
                await asyncio.sleep(1)
        assert patient.result() == "c"

    world.run(scenario)


def test_no_more_models_are_evicted_than_necessary() -> None:
    """The evicted one takes a while to end, and requests to others meanwhile evict nothing."""
    world = World(cpu_mb=350)
    world.ends_in_s = 1.0

    async def scenario(models: Recognisers) -> None:
        for name in "bc":
            await say(models, name)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(say(models, "d"))
            await asyncio.sleep(0.1)
            await say(models, "a")  # its end wakes requests that wait for memory
        assert world.alive == ["a", "c", "d"]

    world.run(scenario)


def test_a_large_model_evicts_all_that_it_needs_at_once() -> None:
    world = World(offer("a", 50), offer("b"), offer("c"), offer("big", 200))
    world.ends_in_s = 1.0

    async def scenario(models: Recognisers) -> None:
        for name in "bc":
            await say(models, name)
        began = asyncio.get_running_loop().time()
        assert await say(models, "big") == "big"
        took_s = asyncio.get_running_loop().time() - began
        assert took_s == pytest.approx(world.ends_in_s + LOAD_S + 2 * DECODE_S)

    world.run(scenario)


def test_a_loaded_model_without_a_request_makes_room() -> None:
    world = World()

    async def scenario(models: Recognisers) -> None:
        async with asyncio.TaskGroup() as tasks:
            gone = tasks.create_task(say(models, "b"))
            await asyncio.sleep(1)
            gone.cancel()
            assert await tasks.create_task(say(models, "c")) == "c"

    world.run(scenario)


def test_a_model_that_never_fits_is_refused_at_once_with_the_sizes() -> None:
    world = World(offer("a"), offer("huge", 200), offer("gpu", 900, "cuda:0"))

    async def scenario(models: Recognisers) -> None:
        with pytest.raises(EngineError, match=r"needs about 200 MB.*250, of which a keeps 100 \("):
            await say(models, "huge")
        assert await say(models, "gpu") == "gpu"

    world.run(scenario)
    assert world.loaded == ["a", "gpu"]


def test_the_refusal_names_no_permanent_model_that_takes_nothing_on_the_device() -> None:
    world = World(offer("a"), offer("gpu", 1200, "cuda:0"))

    async def scenario(models: Recognisers) -> None:
        with pytest.raises(
            EngineError, match=r"needs about 1200 MB \(cuda:0\); models may take 1000 \("
        ):
            await say(models, "gpu")

    world.run(scenario)


def test_the_default_is_loaded_even_if_it_is_too_large() -> None:
    world = World(offer("a", 9999), offer("b"))

    async def scenario(models: Recognisers) -> None:
        assert await say(models, "a") == "a"

    world.run(scenario)


def test_memory_is_what_the_workers_are_measured_to_use() -> None:
    world = World(cpu_mb=350)
    world.resident = {"a": 20, "b": 300}

    async def scenario(models: Recognisers) -> None:
        await say(models, "b")
        states = {state.offer.name: state for state in models.listing()}
        assert (states["a"].memory_mb, states["b"].memory_mb) == (20, 300)
        await say(models, "c")  # 20 + 300 + 100 is too much, though 3 x 100 was not
        assert world.alive == ["a", "c"]
        states = {state.offer.name: state for state in models.listing()}
        assert (states["b"].memory_mb, states["b"].state) == (0, "unloaded")

    world.run(scenario)


def test_a_model_is_unloaded_on_request_and_its_next_use_loads_it_again() -> None:
    world = World()
    world.ends_in_s = 2.0

    async def scenario(models: Recognisers) -> None:
        await say(models, "b")
        model = models.get("b")
        assert model is not None
        began_s = asyncio.get_running_loop().time()
        await world.registry.unload(model)
        assert asyncio.get_running_loop().time() - began_s == world.ends_in_s
        assert (world.alive, model.state) == (["a"], "unloaded")
        await world.registry.unload(model)
        assert await say(models, "b") == "b"

    world.run(scenario)
    assert world.loaded == ["a", "b", "b"]
    assert "earshot_asr_evictions" not in world.metrics.counts


def test_what_is_needed_is_not_unloaded_on_request() -> None:
    world = World()

    async def refusal(model: ServedRecogniser | None) -> str:
        assert model is not None
        with pytest.raises(Conflict) as caught:
            await world.registry.unload(model)
        return caught.value.code

    async def scenario(models: Recognisers) -> None:
        b = models.get("b")
        assert b is not None
        assert await refusal(models.default) == "model_is_default"
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(say(models, "b"))
            await asyncio.sleep(LOAD_S / 2)
            assert (b.state, await refusal(b)) == ("loading", "model_busy")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(say(models, "b"))
            await asyncio.sleep(DECODE_S / 2)
            assert (b.state, await refusal(b)) == ("loaded", "model_busy")
        world.registry.pin(b)
        assert await refusal(b) == "model_pinned"
        with pytest.raises(Conflict, match="always kept"):
            world.registry.unpin(models.default)

    world.run(scenario)


def test_a_pinned_model_is_not_evicted() -> None:
    world = World(cpu_mb=350)

    async def scenario(models: Recognisers) -> None:
        b = models.get("b")
        assert b is not None
        world.registry.pin(b)
        for name in "bcd":
            await say(models, name)
        assert world.alive == ["a", "b", "d"]
        world.registry.unpin(b)
        await say(models, "c")
        assert world.alive == ["a", "c", "d"]

    world.run(scenario)


def test_a_model_that_is_not_used_for_some_time_is_unloaded() -> None:
    world = World(idle_s=60)

    async def scenario(models: Recognisers) -> None:
        await say(models, "b")
        await asyncio.sleep(59)
        assert world.alive == ["a", "b"]
        await say(models, "b")
        await asyncio.sleep(59)
        assert world.alive == ["a", "b"]
        await asyncio.sleep(2)
        assert world.alive == ["a"]
        b = models.get("b")
        assert b is not None
        with b.hold():
            await asyncio.sleep(600)
            assert world.alive == ["a", "b"]
        await asyncio.sleep(61)
        assert world.alive == ["a"]

    world.run(scenario)
    assert "earshot_asr_evictions" not in world.metrics.counts
