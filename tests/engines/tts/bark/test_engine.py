"""Clauses pass the stages independently of each other; an end frees what they used."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from threading import Event

import numpy as np
import pytest

from core.audio import AudioFrame
from core.errors import InvalidTokens, RequestError
from engines.base import TtsInfo
from engines.base.voice import StagedTts
from engines.tts.bark.engine import BarkTts
from engines.tts.bark.stage_tokens import FineItem
from engines.tts.bark.stages import BarkStages
from engines.tts.shared.text import UNSPEAKABLE
from engines.tts.token_model.backend import NewId
from tests.engines.tts.bark.checkpoint import layout, speaker_prompt, tokenizer
from tests.engines.tts.bark.fakes import (
    FRAME_SAMPLES,
    PATIENCE_S,
    RepeatingFine,
    ScriptedStages,
)

LAYOUT, TOKENIZER = layout(), tokenizer()
FRAMES = LAYOUT.coarse_ids_of(9) // 2
"Frames of every clause: the scripted semantic stage writes 9 ids."
INFO = TtsInfo("bark", 24_000, {"en": ("v2_en_speaker_6", "default")})


def engine(scripted: ScriptedStages) -> BarkTts:
    prompts = {"v2_en_speaker_6": speaker_prompt()}
    return BarkTts(INFO, scripted.stages, TOKENIZER, prompts, scripted.times)


async def speak(tts: BarkTts, *texts: str, voice: str | None = None) -> list[AudioFrame]:
    async def chunks() -> AsyncIterator[str]:
        for text in texts:
            yield text

    async with aclosing(tts.speak(chunks(), language="en", voice=voice)) as frames:
        return [frame async for frame in frames]


def test_clauses_are_spoken_in_their_order_without_gaps() -> None:
    scripted = ScriptedStages(LAYOUT)
    tts = engine(scripted)
    frames = scripted.run(lambda _: speak(tts, "yes", "and no"))
    assert [frame.start for frame in frames] == [0, FRAMES * FRAME_SAMPLES]
    assert {len(frame.pcm) for frame in frames} == {FRAMES * FRAME_SAMPLES}
    assert isinstance(tts, StagedTts)
    times = tts.take_stage_times()
    assert [time.stage for time in times] == ["semantic", "coarse", "fine", "codec"] * 2
    assert tts.take_stage_times() == []


def test_the_speaker_prompt_is_part_of_what_the_stages_read() -> None:
    scripted = ScriptedStages(LAYOUT)
    tts = engine(scripted)

    async def both(_: BarkStages) -> None:
        await speak(tts, "yes", voice="v2_en_speaker_6")
        await speak(tts, "yes", voice="default")

    scripted.run(both)
    spoken, plain = scripted.semantic.requests
    assert spoken.prompt == plain.prompt
    assert set(plain.added) == {LAYOUT.semantic_stop}
    assert spoken.added == tuple(speaker_prompt().semantic[-LAYOUT.text_ids :])
    assert len(scripted.coarse.requests[0].prompt) > LAYOUT.coarse_input_ids + 1


class WaitingFine(RepeatingFine):
    """Its first step ends after a step of another stage."""

    def __init__(self) -> None:
        super().__init__()
        self.is_in_step, self.other_has_stepped = Event(), Event()

    def step(self) -> Sequence[int]:
        self.is_in_step.set()
        assert self.other_has_stepped.wait(PATIENCE_S)
        return super().step()


def test_one_clause_is_in_the_fine_stage_while_another_is_in_the_semantic_one() -> None:
    fine = WaitingFine()
    scripted = ScriptedStages(LAYOUT, fine=fine)
    tts, usual = engine(scripted), scripted.semantic.step

    def step() -> Mapping[int, NewId]:
        if fine.is_in_step.is_set():
            fine.other_has_stepped.set()
        return usual()

    scripted.semantic.step = step  # type: ignore[method-assign]

    async def scenario(_: BarkStages) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(speak(tts, "first"))
            assert await asyncio.to_thread(fine.is_in_step.wait, PATIENCE_S)
            tasks.create_task(speak(tts, "second"))

    scripted.run(scenario)
    assert len(scripted.times) == 8


def test_clauses_at_once_share_steps_and_sound_as_alone() -> None:
    scripted = ScriptedStages(LAYOUT)
    tts = engine(scripted)
    texts = ("one", "two!", "three")

    async def scenario(_: BarkStages) -> tuple[list[list[AudioFrame]], list[list[AudioFrame]]]:
        together = await asyncio.gather(*(speak(tts, text) for text in texts))
        return list(together), [await speak(tts, text) for text in texts]

    for together, alone in zip(*scripted.run(scenario), strict=True):
        assert np.array_equal(together[0].pcm, alone[0].pcm)
    assert scripted.semantic.most_running == 2
    assert not scripted.semantic.running
    assert not scripted.coarse.running


class WrongFine(RepeatingFine):
    """It moves all frames by one."""

    def start(self, item: FineItem) -> int:
        item._codes[:, :2] = np.roll(item._codes[:, :2], 1, axis=0)
        return super().start(item)


def test_wrong_tokens_are_refused_by_the_name_of_their_stage() -> None:
    scripted = ScriptedStages(LAYOUT, fine=WrongFine())
    tts = engine(scripted)
    with pytest.raises(InvalidTokens, match="stage fine: frame 0 is not that of the coarse"):
        scripted.run(lambda _: speak(tts, "yes"))


def test_an_interrupted_clause_frees_every_stage() -> None:
    scripted = ScriptedStages(LAYOUT)
    tts = engine(scripted)

    async def scenario(_: BarkStages) -> None:
        for turns in range(12):
            task = asyncio.create_task(speak(tts, "a sentence"))
            for _turn in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
        await asyncio.gather(*(speak(tts, "yes") for _ in range(4)))

    scripted.run(scenario)
    assert not scripted.semantic.running
    assert not scripted.coarse.running


def test_a_clause_with_too_many_tokens_is_refused() -> None:
    scripted = ScriptedStages(LAYOUT)
    tts = engine(scripted)
    with pytest.raises(RequestError, match="a clause of 17 tokens; allowed: up to 16") as raised:
        scripted.run(lambda _: speak(tts, "seventeen letters"))
    assert raised.value.code == UNSPEAKABLE
