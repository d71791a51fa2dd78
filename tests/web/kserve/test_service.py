"""What the metrics say of models that load and compute in virtual time."""

import asyncio
from typing import Any, cast

import pytest

from core.errors import RequestError
from serving.asr.scheduling import DecodePriority
from serving.remote.models import RemoteModels
from tests.pipeline.fakes import LoopClock
from tests.serving.models.fake_models import DECODE_S, ITEM, LOAD_S, Recognisers, World, offer
from web.kserve.metrics import PENDING
from web.kserve.service import SPEECH_NAMES, KserveService
from web.kserve.tensors import InferRequest


def service_of(world: World) -> KserveService:
    no_speech = cast(Any, None)  # nothing is recognised through the service
    no_remote = RemoteModels()
    return KserveService(no_speech, world.registry, no_remote, LoopClock(), lambda: True, "0")


def pending(service: KserveService, model: str) -> int | None:
    """The number of waiting requests of a model; None if the metrics do not have it."""
    start = f'{PENDING}{{model="{model}",version="1"}} '
    found = [line for line in service.metrics().splitlines() if line.startswith(start)]
    return int(found[0].removeprefix(start)) if found else None


def test_a_loaded_model_has_metrics_before_its_first_request() -> None:
    world = World(offer("a", 100, "cpu", "default"), offer("b"))

    async def scenario(models: Recognisers) -> None:
        service = service_of(world)
        assert pending(service, "a") == 0
        assert {pending(service, name) for name in SPEECH_NAMES} == {0}
        assert pending(service, "b") is None
        world.lives[0].waiting = 7
        assert pending(service, "a") == pending(service, "infer_bls") == 7

    world.run(scenario)


def test_requests_that_wait_for_a_load_are_pending() -> None:
    world = World(offer("a", 100, "cpu", "default"), offer("b"))

    async def scenario(models: Recognisers) -> None:
        service, model = service_of(world), models.get("b")
        assert model is not None
        with pytest.raises(RequestError, match="Unknown output"):
            await service.infer(InferRequest("b", outputs=("LOGITS",)), "", 0)
        assert 'nv_inference_request_failure{model="b",version="1",reason="OTHER"} 1' in (
            service.metrics()
        )
        async with asyncio.TaskGroup() as tasks:
            for _ in range(2):
                tasks.create_task(model.decode(ITEM, DecodePriority.FINAL))
            await asyncio.sleep(LOAD_S)
            assert pending(service, "b") == 2
            await asyncio.sleep(1.5 * DECODE_S)  # the warm-up is over, and both are computed
            assert pending(service, "b") == 0

    world.run(scenario)
