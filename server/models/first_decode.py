"""Times one decode at the first start on a GPU. The size of the memory shows which model fits; only
a measurement shows which one is fast enough. The time is stored in the models folder, like those of
`earshot models bench`, so that the next start does not measure again."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import replace

from core.audio import Pcm
from core.conversation.ids import new_id
from core.errors import EarshotError
from core.ports import Clock, Metrics
from engines.base import AsrItem
from server.commands.models.bench import SENTENCES, synthesize
from server.compose.choices import PlacementInputs, choose_one, find_offers, offer_inputs
from server.config import Config
from server.models.one_worker import run_one_worker
from serving.asr.model import AsrWorkerPool
from serving.asr.scheduling import DecodePriority
from serving.placement.benchmarks import ModelBenchmark, device_name, save_benchmark
from serving.placement.choose import AUTO, WHISPER, WhisperWeights, benchmark_on
from serving.placement.offers import LoadableModel
from serving.placement.whisper import CPU

logger = logging.getLogger(__name__)

DecodeTimer = Callable[[LoadableModel], Awaitable[float]]
"""Function that returns the time to decode one utterance, in ms. Raises EarshotError if it cannot
be decoded."""

MAX_START_S = 120.0
"Time limit in seconds for loading a model and two decodes. A slower model is too slow for speech."


async def with_benchmarks(
    config: Config, inputs: PlacementInputs, timer: DecodeTimer
) -> PlacementInputs:
    """Returns the survey with a measured time for the model that `auto` takes on a GPU. A model
    that is too slow gives way to the next, which is measured too. Raises EngineMissing or
    ConfigError."""
    asr = config.asr
    if asr.engine not in (AUTO, WHISPER) or asr.model != AUTO or "model" in asr.options:
        return inputs
    for _ in inputs.weights:
        choice = choose_one(config, "asr", inputs)
        model = next(
            (
                weights
                for weights in inputs.weights
                if str(weights.path) == choice.options.get("model")
            ),
            None,
        )
        if choice.name != WHISPER or model is None or benchmark_on(model, inputs.hardware):
            break
        (offer, *_) = find_offers(config, offer_inputs(config, inputs))
        if CPU in offer.memory_mb:  # for processors it is known which sizes are fast enough
            break
        benchmark = await _measure(offer, inputs, timer)
        if benchmark is None:
            break
        inputs = _with_benchmark(inputs, model, benchmark)
    return inputs


async def _measure(
    offer: LoadableModel, inputs: PlacementInputs, timer: DecodeTimer
) -> ModelBenchmark | None:
    device = device_name(inputs.hardware)
    logger.info("asr: %s has not been measured on %s: decoding once", offer.name, device)
    try:
        async with asyncio.timeout(MAX_START_S):
            utterance_ms = await timer(offer)
    except TimeoutError:
        utterance_ms = 1000 * MAX_START_S
    except EarshotError as error:
        logger.warning("asr: %s could not be measured on %s: %s", offer.name, device, error)
        return None
    logger.info("asr: %s takes %.0f ms per utterance on %s", offer.name, utterance_ms, device)
    return ModelBenchmark("", utterance_ms, device=device)


def _with_benchmark(
    inputs: PlacementInputs, model: WhisperWeights, benchmark: ModelBenchmark
) -> PlacementInputs:
    try:
        save_benchmark(model.path.parent, model.path.name, benchmark)
    except OSError as error:
        logger.warning(
            "asr: the measurement could not be stored and is repeated at the next start: %s", error
        )
    weights = tuple(
        replace(model_weights, measured=benchmark) if model_weights is model else model_weights
        for model_weights in inputs.weights
    )
    return replace(inputs, weights=weights)


def decode_timer(clock: Clock, metrics: Metrics) -> DecodeTimer:
    """Returns a timer that runs the model in one worker, as the server would."""

    async def time_decode(offer: LoadableModel) -> float:
        pcm = await synthesize(SENTENCES[1])
        async with run_one_worker(offer, clock, metrics) as pool:
            return 1000 * await _faster_decode_s(pool, pcm, clock)

    return time_decode


async def _faster_decode_s(pool: AsrWorkerPool, pcm: Pcm, clock: Clock) -> float:
    """Returns the faster of two decodes, in seconds: the first one warms up the model."""
    await pool.ready()
    fastest_s = math.inf
    for _ in range(2):
        began_s = clock.now()
        await pool.submit(AsrItem(new_id("first"), pcm, is_final=True), DecodePriority.FINAL)
        fastest_s = min(fastest_s, clock.now() - began_s)
    return fastest_s
