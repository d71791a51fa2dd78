"""Prompts, windows and packing of each stage, for any length and any speaker prompt."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from engines.tts.bark.layout import BarkLayout
from engines.tts.bark.stage_tokens import (
    CoarseItem,
    FineItem,
    SemanticItem,
    coarse_order,
    pack_coarse,
    unpack_coarse,
)
from engines.tts.bark.voices import SpeakerPrompt, Tokens
from tests.engines.tts.bark.checkpoint import CODES, SEMANTIC_IDS, layout, speaker_prompt

LAYOUT = layout()
PROMPTS = st.none() | st.builds(speaker_prompt, st.integers(0, 3), st.integers(2, 60))
SEMANTIC = st.lists(st.integers(0, SEMANTIC_IDS - 1), min_size=1, max_size=60)
COARSE = st.integers(1, 90).flatmap(
    lambda n: arrays(np.int64, (2, n), elements=st.integers(0, CODES - 1))
)


@given(COARSE)
def test_packed_frames_are_unpacked(codes: Tokens) -> None:
    ids = pack_coarse(codes, LAYOUT)
    for place, one in enumerate(ids):
        allowed = coarse_order(LAYOUT, place)
        assert allowed.first <= one < allowed.first + allowed.count
        assert one - allowed.first == codes[place % 2, place // 2]
    assert np.array_equal(unpack_coarse(ids, LAYOUT), codes)


@given(st.lists(st.integers(0, 255), max_size=LAYOUT.text_ids), PROMPTS)
def test_text_and_speaker_prompt_fill_the_same_places(
    text: list[int], prompt: SpeakerPrompt | None
) -> None:
    item = SemanticItem.of(text, prompt, LAYOUT, max_ids=40, min_stop_chance=0.2, seed=1)
    request = item.next_request()
    assert request is not None
    assert len(request.prompt) == len(request.added) + 1 == LAYOUT.text_ids + 1
    assert request.prompt[-1] == LAYOUT.semantic_infer
    assert [one - LAYOUT.text_offset for one in request.prompt[: len(text)]] == text
    assert set(request.prompt[len(text) : -1]) <= {LAYOUT.text_pad}
    told = [one for one in request.added if one != LAYOUT.semantic_stop]
    assert told == ([] if prompt is None else prompt.semantic[-LAYOUT.text_ids :].tolist())


def test_the_end_marker_is_no_semantic_id() -> None:
    item = SemanticItem.of([1], None, LAYOUT, max_ids=40, min_stop_chance=1, seed=0)
    item.push([3, 4, LAYOUT.semantic_stop], has_stop=True)
    assert item.ids == [3, 4]
    assert item.next_request() is None


@given(SEMANTIC, PROMPTS)
def test_coarse_windows_follow_each_other_until_all_is_written(
    semantic: list[int], prompt: SpeakerPrompt | None
) -> None:
    item = CoarseItem(semantic, prompt, LAYOUT, seed=0)
    written: list[int] = []
    while (request := item.next_request()) is not None:
        seen, marker = request.prompt[: LAYOUT.coarse_input_ids], LAYOUT.coarse_input_ids
        assert request.prompt[marker] == LAYOUT.coarse_infer
        before = list(request.prompt[marker + 1 :])
        assert len(before) <= LAYOUT.coarse_history_ids
        shared = min(len(before), len(written))
        assert before[len(before) - shared :] == written[len(written) - shared :]
        # The window of the sound is within what the stage sees of the semantic ids.
        place = len(written) / LAYOUT.coarse_per_semantic
        last = semantic[min(len(semantic) - 1, int(place))]
        assert last in seen
        ids = [LAYOUT.semantic_ids + n % 2 * CODES for n in range(request.max_ids)]
        item.push(ids, has_stop=False)
        written += ids
    assert item.ids == written
    assert len(written) == item.total == LAYOUT.coarse_ids_of(len(semantic))
    assert item.total % 2 == 0
    assert abs(item.total / 2 / LAYOUT.frame_rate_hz - len(semantic) / LAYOUT.semantic_rate_hz) < (
        1 / LAYOUT.frame_rate_hz
    )


@given(COARSE, PROMPTS)
def test_every_frame_gets_its_finer_codes_and_keeps_the_coarse_ones(
    coarse: Tokens, prompt: SpeakerPrompt | None
) -> None:
    item = FineItem(coarse, prompt, LAYOUT, seed=0)
    rounds = 0
    while (window := item.next_window) is not None:
        rounds += 1
        codes = item.window_codes().copy()
        assert codes.shape == (LAYOUT.fine_window_frames, LAYOUT.codebooks)
        if prompt is not None and rounds == 1:
            told = prompt.fine[:, -LAYOUT.fine_history_frames :]
            assert np.array_equal(codes[: told.shape[1]].T, told)
            assert window.fill == told.shape[1], "the prompt is not written again"
        codes[window.fill :, 2:] = codes[window.fill :, :1]
        codes[: window.fill] = -1  # what is before the fill must be ignored
        item.push(codes)
    assert np.array_equal(item.codes[:2], coarse)
    assert np.array_equal(item.codes[2:], np.repeat(coarse[:1], 6, axis=0))


@pytest.mark.parametrize(("ids", "frames"), [(0, 0), (1, 1), (2, 3), (499, 750), (768, 1154)])
def test_the_length_of_the_sound_follows_from_the_semantic_ids(ids: int, frames: int) -> None:
    assert BarkLayout().coarse_ids_of(ids) == 2 * frames
