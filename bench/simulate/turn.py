"""One simulated turn: speech with partials, early recognition, assistant, voice, ear."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from math import exp, log
from random import Random
from typing import Literal

from bench.simulate.site import Site
from core.audio import ASR_RATE_HZ, silence
from core.errors import EarshotError, EngineError, OverloadedError
from engines.base import AsrItem
from pipeline.transcription.partials import PartialPacing
from serving.asr.scheduling import DecodePriority
from serving.scheduling.llm_slots import LlmSlots, SlotHolder

LONGEST_S = 25.0
"Longest utterance."

FIRST_PARTIAL_S = 0.3
"Speech before the first partial."

_SOUND = silence(1000 * (round(LONGEST_S) + 1), ASR_RATE_HZ)
"Utterances are views of this: only their lengths count."

Outcome = Literal["answered", "refused", "failed"]


@dataclass(frozen=True, slots=True)
class SimulatedTurn:
    """Result of a turn."""

    ended_s: float
    "Time at which the speech ended, since the start of the simulation."
    outcome: Outcome
    voice_to_voice_ms: float
    "From the last sample of speech to the first sound of the answer; 0 without an answer."
    answer_s: float = 0.0
    "Length of the answer."


async def run_turn(site: Site, name: str, gateway: int, random: Random) -> SimulatedTurn:
    """Speaks an utterance in virtual time, and waits for its answer. `name`: id of the utterance.
    `gateway`: index of the gateway that has the call."""
    loop, costs = asyncio.get_running_loop(), site.costs
    length_s = exp(random.gauss(log(costs.speech_s), costs.speech_spread))
    length_s = min(max(length_s, FIRST_PARTIAL_S), LONGEST_S)
    partials = asyncio.create_task(_ask_for_partials(site, name))
    await asyncio.sleep(length_s)
    ended_s = loop.time()
    endpoint_s = ended_s + _endpoint_wait_s(site, random)
    promotion = loop.call_at(endpoint_s, site.asr.promote, name)
    try:
        await asyncio.sleep(costs.notice_ms / 1000)
        partials.cancel()
        await _recognise(site, name, length_s, endpoint_s)
        await site.gateways[gateway].work(costs.turn_ms / 1000)
        await _write(site)
        await _speak(site)
    except OverloadedError:
        return SimulatedTurn(ended_s, "refused", 0.0)
    except EarshotError:
        return SimulatedTurn(ended_s, "failed", 0.0)
    finally:
        partials.cancel()
        promotion.cancel()
        site.asr.forget(name)
    # An answer that was begun early waits for the end of the turn.
    sounds_s = max(loop.time(), endpoint_s)
    latency_ms = 1000 * (sounds_s - ended_s) + costs.out_ms
    return SimulatedTurn(ended_s, "answered", latency_ms, costs.answer_s)


def _endpoint_wait_s(site: Site, random: Random) -> float:
    costs = site.costs
    wait_ms = exp(random.gauss(log(costs.endpoint_ms), costs.endpoint_spread))
    return max(wait_ms, costs.notice_ms) / 1000


def _item(name: str, length_s: float, *, is_final: bool) -> AsrItem:
    return AsrItem(name, _SOUND[: round(length_s * ASR_RATE_HZ)], is_final)


async def _ask_for_partials(site: Site, name: str) -> None:
    """Asks for partials at the product's pace, until it is cancelled."""
    loop = asyncio.get_running_loop()
    began_s, pacing = loop.time(), PartialPacing()
    await asyncio.sleep(FIRST_PARTIAL_S)
    while True:
        await asyncio.sleep(pacing.wait_s(loop.time()))
        pacing.requested(loop.time())
        item = _item(name, loop.time() - began_s, is_final=False)
        await asyncio.sleep(site.costs.hop_ms / 1000)
        try:
            await site.asr.submit(item, DecodePriority.PARTIAL)
        except EarshotError:
            pacing.refused()
        else:
            pacing.returned(loop.time(), has_words=True)


async def _recognise(site: Site, name: str, length_s: float, endpoint_s: float) -> None:
    """Recognises the utterance early, and again at the end of the turn if that fails.

    A worker that is lost costs one more try.
    """
    loop, item = asyncio.get_running_loop(), _item(name, length_s, is_final=True)
    await asyncio.sleep(site.costs.hop_ms / 1000)  # there and back; the scheduler is at the pool
    with suppress(EarshotError):
        await site.asr.submit(item, DecodePriority.SPECULATIVE)
        return
    await asyncio.sleep(max(0.0, endpoint_s - loop.time()))
    try:
        await site.asr.submit(item, DecodePriority.FINAL)
    except OverloadedError:
        raise
    except EngineError:
        await site.asr.submit(item, DecodePriority.FINAL)


async def _write(site: Site) -> None:
    """Waits for the first clause of the language model, which goes on in its slot."""
    if site.slots is None:
        await asyncio.sleep(site.costs.llm_first_ms / 1000)
        return
    has_clause = asyncio.Event()
    site.background.create_task(_fill_slot(site, site.slots, has_clause))
    await has_clause.wait()


async def _fill_slot(site: Site, slots: LlmSlots, has_clause: asyncio.Event) -> None:
    costs, loop = site.costs, asyncio.get_running_loop()
    async with slots.take(SlotHolder()):
        site.answers += 1
        began_s, factor = loop.time(), site.llm_factor()
        await asyncio.sleep((costs.hop_ms + costs.llm_first_ms * factor) / 1000)
        has_clause.set()
        await asyncio.sleep(costs.llm_rest_ms * factor / 1000)
        site.llm_busy_s += loop.time() - began_s
        site.answers -= 1


async def _speak(site: Site) -> None:
    """Waits for the first clause of the voice, which then computes the others."""
    costs = site.costs
    await asyncio.sleep(costs.hop_ms / 1000)
    await site.voice.work(costs.tts_ms / 1000)
    if costs.tts_rest_ms:
        site.background.create_task(site.voice.work(costs.tts_rest_ms / 1000))
