"""Each stage writes what transformers' own writes, alone and while others join, wait and leave."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from transformers import BarkModel
from transformers.models.bark.generation_configuration_bark import (
    BarkCoarseGenerationConfig,
    BarkFineGenerationConfig,
    BarkSemanticGenerationConfig,
)

from core.errors import EngineError
from engines.base.codec import Samples
from engines.registry import load
from engines.tts.bark import create_stages, networks
from engines.tts.bark.engine import BarkTts
from engines.tts.bark.layout import BarkLayout, Sampling
from engines.tts.bark.settings import Settings
from engines.tts.bark.stage_tokens import CoarseItem, FineItem, SemanticItem
from engines.tts.bark.token_checks import check_coarse
from engines.tts.bark.voices import SpeakerPrompt
from tests.engines.tts.bark.checkpoint import CODES, GENERATION, layout, write_checkpoint

TEXTS = ("good night", "what?", "it is nine", "good morning")
"Each becomes at least eight frames. The codec lengthens shorter clips."
VOICES = (None, "v2_en_speaker_6")
LAYOUT = layout()

ResultT = TypeVar("ResultT")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("bark"))


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return BarkModel.from_pretrained(str(folder)).eval()


@pytest.fixture
def tts(folder: Path) -> Iterator[BarkTts]:
    two = {"workers": 2, "batch": 2}
    options = {"path": str(folder), "min_stop_chance": 1, "coarse": two, "fine": {"batch": 3}}
    engine = load("tts", "bark", options)
    assert isinstance(engine, BarkTts)
    yield engine
    asyncio.run(engine.aclose())


def run(scenario: Callable[[], Awaitable[ResultT]]) -> ResultT:
    async def main() -> ResultT:
        return await scenario()

    return asyncio.run(main())


def inputs(tts: BarkTts, text: str, voice: str | None) -> Mapping[str, Any]:
    """Returns the arguments of transformers' `generate`, as its processor makes them."""
    ids = tts._tokenizer.encode(text, add_special_tokens=False).ids
    places = LAYOUT.text_ids - len(ids)
    prompt = tts._prompts.get(voice) if voice else None
    history = None
    if prompt is not None:
        history = {
            "semantic_prompt": torch.tensor(prompt.semantic),
            "coarse_prompt": torch.tensor(prompt.coarse),
            "fine_prompt": torch.tensor(prompt.fine),
        }
    return {
        "input_ids": torch.tensor([ids + [0] * places]),
        "attention_mask": torch.tensor([[1] * len(ids) + [0] * places]),
        "history_prompt": history,
    }


def speak(tts: BarkTts, text: str, voice: str | None) -> Awaitable[Samples]:
    return tts.sound(text, voice or "default")


@pytest.mark.parametrize("voice", VOICES)
@pytest.mark.parametrize("text", TEXTS)
def test_greedy_tokens_of_every_stage_equal_those_of_transformers(
    tts: BarkTts, model: Any, text: str, voice: str | None
) -> None:
    asked = dict(inputs(tts, text, voice))
    prompt = tts._prompts.get(voice) if voice else None
    history, stages = asked["history_prompt"], tts._stages
    configs = {
        "semantic_generation_config": BarkSemanticGenerationConfig(**GENERATION["semantic_config"]),
        "coarse_generation_config": BarkCoarseGenerationConfig(
            **GENERATION["coarse_acoustics_config"]
        ),
    }
    fine_config = BarkFineGenerationConfig(**GENERATION["fine_acoustics_config"])
    semantic_config = {"semantic_generation_config": configs["semantic_generation_config"]}
    with torch.inference_mode():
        theirs = model.semantic.generate(**asked, **semantic_config)
        semantic_ids = theirs[0].tolist()
        coarse = model.coarse_acoustics.generate(
            theirs, **configs, codebook_size=CODES, history_prompt=history
        )
        fine = model.fine_acoustics.generate(
            coarse,
            **configs,
            fine_generation_config=fine_config,
            codebook_size=CODES,
            history_prompt=history,
        )

    async def ours() -> tuple[SemanticItem, CoarseItem, FineItem]:
        ids = tts._tokenizer.encode(text, add_special_tokens=False).ids
        first = SemanticItem.of(ids, prompt, LAYOUT, max_ids=40, min_stop_chance=1, seed=0)
        await stages.semantic.run(first)
        second = CoarseItem(first.ids, prompt, LAYOUT, seed=0)
        await stages.coarse.run(second)
        codes = check_coarse(second.ids, len(first.ids), LAYOUT)
        third = FineItem(codes, prompt, LAYOUT, seed=0)
        await stages.fine.run(third)
        return first, second, third

    first, second, third = run(ours)
    if semantic_ids[-1] == LAYOUT.semantic_stop:
        semantic_ids.pop()
    assert first.ids == semantic_ids
    assert second.ids == coarse[0].tolist()
    assert np.array_equal(third.codes, fine[0].numpy())


@pytest.mark.parametrize("voice", VOICES)
def test_the_sound_equals_that_of_transformers(tts: BarkTts, model: Any, voice: str | None) -> None:
    found = []
    for text in TEXTS:
        ours = run(lambda text=text: speak(tts, text, voice))  # type: ignore[misc]
        theirs = model.generate(**inputs(tts, text, voice))[0].numpy()
        assert ours.shape == theirs.shape
        assert np.abs(ours - theirs).max() < 1e-5 * np.abs(theirs).max()
        found.append(ours)
    shortest = min(map(len, found))
    loud = max(np.abs(sound).max() for sound in found)
    assert np.abs(found[0][:shortest] - found[1][:shortest]).max() > 0.01 * loud, "texts matter"


def test_clauses_at_once_are_spoken_as_alone(tts: BarkTts) -> None:
    wanted = [(text, voice) for text in TEXTS for voice in VOICES]

    async def together() -> list[Samples]:
        return await asyncio.gather(*(speak(tts, *one) for one in wanted))

    found = run(together)
    batches = {time.stage: time.batch for time in tts.take_stage_times()}
    assert max(batches.values()) > 1
    for one, sound in zip(wanted, found, strict=True):
        alone = run(lambda one=one: speak(tts, *one))  # type: ignore[misc]
        assert sound.shape == alone.shape
        assert np.abs(sound - alone).max() < 1e-4 * np.abs(alone).max()


def test_the_end_is_written_above_its_least_probability(folder: Path, tts: BarkTts) -> None:
    eager = load("tts", "bark", {"path": str(folder), "min_stop_chance": 0.001})
    assert isinstance(eager, BarkTts)
    usual = run(lambda: speak(tts, "good night", None))
    soon = run(lambda: speak(eager, "good night", None))
    asyncio.run(eager.aclose())
    assert len(soon) < len(usual)


def test_a_seed_repeats_the_choices_of_all_stages(folder: Path) -> None:
    settings = Settings(path=str(folder))
    warm = replace(LAYOUT, semantic=Sampling(1, 50), coarse=Sampling(1, 50), fine=Sampling(0.5))
    loaded = networks.load_networks(settings, CODES)
    stages = create_stages(loaded, warm, settings, lambda _: None)

    async def sounds() -> list[Samples]:
        try:
            return [await stages.sound([1, 2, 3], None, seed=seed) for seed in (1, 1, 2)]
        finally:
            await stages.aclose()

    first, again, other = run(sounds)
    assert np.array_equal(first, again)
    assert first.shape != other.shape or not np.array_equal(first, other)


@pytest.mark.parametrize("prompt", [None, "v2_en_speaker_6"])
def test_a_cancelled_clause_frees_its_slots(folder: Path, prompt: str | None) -> None:
    one = {"batch": 1}
    options = {"path": str(folder), "semantic": one, "coarse": one, "fine": one, "codec": one}
    engine = load("tts", "bark", options)
    assert isinstance(engine, BarkTts)

    async def scenario() -> None:
        for turns in range(0, 200, 20):
            task = asyncio.create_task(engine.sound("good night", prompt or "default"))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
        assert len(await engine.sound("good night", prompt or "default"))
        await engine.aclose()

    run(scenario)


def test_the_number_of_frames_is_that_of_transformers() -> None:
    published = BarkLayout()
    lengths = torch.arange(published.max_semantic_ids + 1)
    frames = torch.floor(lengths * published.coarse_per_semantic / 2)
    assert [published.coarse_ids_of(ids) for ids in lengths.tolist()] == (
        torch.round(frames * 2).int().tolist()
    )


@pytest.mark.parametrize(
    ("file", "change", "problem"),
    [
        ("config.json", {"model_type": "gpt2"}, "a model of type 'gpt2', not 'bark'"),
        ("generation_config.json", {"codebook_size": 64}, "needed: 178 or more"),
    ],
)
def test_a_checkpoint_of_another_form_is_refused(
    tmp_path: Path, file: str, change: Mapping[str, Any], problem: str
) -> None:
    write_checkpoint(tmp_path)
    path = tmp_path / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}), encoding="utf-8")
    with pytest.raises(EngineError, match=problem):
        load("tts", "bark", {"path": str(tmp_path)})


def test_prompts_are_offered_as_voices(tts: BarkTts) -> None:
    assert tts.info.voices["en"] == ("v2_en_speaker_6", "en_speaker_0")
    assert isinstance(tts._prompts["de_speaker_1"], SpeakerPrompt)
