"""The steps write the same ids as transformers' `generate`, whoever joins and leaves meanwhile."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import GPT2LMHeadModel

from bench.gpu.audio_tokens import generate
from core.errors import EngineError, OverloadedError
from engines.tts.indri.checkpoint import frame_order, load_backend, network_of
from engines.tts.indri.engine import speech_prompt
from engines.tts.indri.frames import unpack
from engines.tts.token_model.backend import TokenRequest
from engines.tts.token_model.torch_backend import TorchBackend
from tests.engines.tts.indri.checkpoint import layout, tokenizer, write_language_model

LAYOUT, TOKENIZER = layout(), tokenizer()
TEXTS = ("hi", "turn on the light", "it is nine o'clock", "yes, of course")
SPEAKER = LAYOUT.speakers["spkr_63"]
IDS = 48


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("indri")
    write_language_model(made)
    return made


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return GPT2LMHeadModel.from_pretrained(str(folder)).eval()


@pytest.fixture
def backend(folder: Path) -> TorchBackend:
    return load_backend(folder, LAYOUT, slots=3, device="cpu", dtype="float32")


def request(text: str, max_ids: int = IDS, **sampling: Any) -> TokenRequest:
    prompt = speech_prompt(text, SPEAKER, LAYOUT, TOKENIZER)
    return TokenRequest(tuple(prompt), max_ids, **sampling)


def run(backend: TorchBackend, requests: Mapping[int, TokenRequest]) -> dict[int, list[int]]:
    """Returns the ids by index; `requests`: by the step before which each joins."""
    numbers: dict[int, int] = {}
    written: dict[int, list[int]] = {step: [] for step in requests}
    is_over: set[int] = set()
    step = 0
    while len(is_over) < len(requests):
        if step in requests:
            numbers[backend.start(requests[step])] = step
        for number, new in backend.step().items():
            written[numbers[number]].append(new.id)
            if new.is_last:
                is_over.add(numbers[number])
        step += 1
    return written


def test_greedy_ids_equal_those_of_generate(backend: TorchBackend, model: Any) -> None:
    for text in TEXTS:
        asked = request(text)
        assert run(backend, {0: asked})[0] == generate(model, LAYOUT, asked)


def test_speeches_that_join_and_leave_do_not_change_each_other(
    backend: TorchBackend, model: Any
) -> None:
    asked = {0: request(TEXTS[0]), 3: request(TEXTS[1], 16), 5: request(TEXTS[2], 24)}
    asked[40] = request(TEXTS[3])  # gets a slot that another speech has used
    found = run(backend, asked)
    for step, one in asked.items():
        assert found[step] == generate(model, LAYOUT, one)
    assert len({tuple(ids[:16]) for ids in found.values()}) == len(asked), "the texts matter"


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.9, "top_k": 50, "seed": 3}])
def test_every_id_is_in_its_codebook(backend: TorchBackend, sampling: Any) -> None:
    for text in TEXTS:
        ids = run(backend, {0: request(text, **sampling)})[0]
        frames = unpack(ids, LAYOUT)  # raises if not
        assert frames.shape[1] == (len(ids) - (ids[-1] == LAYOUT.stop)) / 8


def test_a_speech_ends_at_the_end_marker_between_frames(model: Any) -> None:
    """The row of the end marker is the sum of two rows that are often chosen, so it wins soon."""
    network = network_of(model)
    head = network.head.clone()
    head[LAYOUT.stop] = 1.5 * head[LAYOUT.first_audio : LAYOUT.first_audio + 2048].sum(0)
    changed = replace(network, head=head)
    lengths = set()
    for text in TEXTS:
        ids = run(
            TorchBackend(changed, frame_order(LAYOUT), 1, name="tts.indri"), {0: request(text)}
        )[0]
        lengths.add(len(ids))
        assert LAYOUT.stop not in ids[:-1]
        if ids[-1] == LAYOUT.stop:
            assert len(ids) % 8 == 1
    assert min(lengths) < IDS, "one of them ended by itself"


def test_a_seed_repeats_the_choices(backend: TorchBackend) -> None:
    def said(seed: int) -> list[int]:
        return run(backend, {0: request(TEXTS[1], temperature=1.0, top_k=15, seed=seed)})[0]

    assert said(1) == said(1)
    assert said(1) != said(2)


def test_a_cancelled_speech_frees_its_slot_at_once(backend: TorchBackend) -> None:
    first, *_ = [backend.start(request(text)) for text in TEXTS[:3]]
    with pytest.raises(OverloadedError, match="all 3 slots"):
        backend.start(request(TEXTS[3]))
    backend.step()
    backend.cancel(first)
    assert first not in backend.step()
    number = backend.start(request(TEXTS[3]))
    backend.cancel(first)  # over: nothing happens
    while number not in (found := backend.step()):
        pass
    assert not found[number].is_last


def test_caches_are_allocated_once(backend: TorchBackend) -> None:
    kept = backend._cache._kept
    memory = kept.data_ptr()
    run(backend, {0: request(TEXTS[0]), 1: request(TEXTS[1])})
    assert backend._cache._kept is kept
    assert kept.data_ptr() == memory


def test_a_request_that_does_not_fit_is_refused(backend: TorchBackend) -> None:
    with pytest.raises(ValueError, match="the context has 256"):
        backend.start(request(TEXTS[0], 256))


def test_another_network_is_refused_by_the_name_of_the_setting(model: Any) -> None:
    model.config.activation_function = "relu"
    try:
        with pytest.raises(EngineError, match="activation_function is 'relu'; allowed: 'gelu_new'"):
            network_of(model)
    finally:
        model.config.activation_function = "gelu_new"
