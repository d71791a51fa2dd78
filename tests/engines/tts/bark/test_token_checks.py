"""Tokens that the next stage cannot read are refused by the name of the stage that wrote them."""

import re
from contextlib import AbstractContextManager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import EngineError, InvalidTokens
from engines.tts.bark.stage_tokens import first_coarse_id, pack_coarse
from engines.tts.bark.token_checks import (
    check_coarse,
    check_fine,
    check_semantic,
    check_sound,
    check_text,
)
from tests.engines.tts.bark.checkpoint import CODES, SEMANTIC_IDS, layout

LAYOUT = layout()
SEMANTIC = st.lists(st.integers(0, SEMANTIC_IDS - 1), max_size=40)


def refused(stage: str, why: str) -> AbstractContextManager[object]:
    return pytest.raises(InvalidTokens, match=re.escape(f"tts engine 'bark': stage {stage}: {why}"))


def test_the_error_has_its_place_in_the_tree() -> None:
    assert issubclass(InvalidTokens, EngineError)
    assert InvalidTokens.code == "invalid_tokens"


@given(st.lists(st.integers(0, 279), max_size=16))
def test_text_within_its_range_passes(ids: list[int]) -> None:
    check_text(ids, LAYOUT)


@pytest.mark.parametrize("wrong", [-1, 280])
def test_text_outside_its_range_is_refused(wrong: int) -> None:
    with refused("text", f"id {wrong} at place 1; allowed: 0 to 279"):
        check_text([5, wrong], LAYOUT)


@given(SEMANTIC, st.data())
def test_semantic_ids_are_checked_for_range_and_length(ids: list[int], data: st.DataObject) -> None:
    check_semantic(ids, len(ids), LAYOUT)
    if ids:
        with refused("semantic", f"{len(ids)} ids; allowed: at most {len(ids) - 1}"):
            check_semantic(ids, len(ids) - 1, LAYOUT)
        place = data.draw(st.integers(0, len(ids) - 1))
        ids[place] = data.draw(st.sampled_from([-1, SEMANTIC_IDS, 10**9]))
        with refused("semantic", f"id {ids[place]} at place {place}; allowed: 0 to 49"):
            check_semantic(ids, len(ids), LAYOUT)


@given(st.integers(1, 40), st.data())
def test_coarse_ids_are_checked_for_frames_length_and_range(
    semantic: int, data: st.DataObject
) -> None:
    frames = LAYOUT.coarse_ids_of(semantic) // 2
    codes = np.arange(2 * frames).reshape(2, frames) % CODES
    ids = pack_coarse(codes, LAYOUT)
    assert np.array_equal(check_coarse(ids, semantic, LAYOUT), codes)
    with refused("coarse", f"{len(ids) - 1} ids are no whole frames of 2"):
        check_coarse(ids[:-1], semantic, LAYOUT)
    with refused("coarse", f"{len(ids) + 2} ids for {semantic} semantic ids, not {len(ids)}"):
        check_coarse([*ids, *ids[:2]], semantic, LAYOUT)
    place = data.draw(st.integers(0, len(ids) - 1))
    first = first_coarse_id(LAYOUT, place % 2)
    ids[place] = data.draw(st.sampled_from([0, first - 1, first + CODES]))
    with refused("coarse", f"id {ids[place]} at place {place}; allowed: {first} to {first + 31}"):
        check_coarse(ids, semantic, LAYOUT)


def test_fine_codes_are_checked_for_shape_range_and_alignment() -> None:
    coarse = np.arange(10).reshape(2, 5)
    fine = np.concatenate([coarse, np.full((6, 5), CODES - 1)])
    check_fine(fine, coarse, LAYOUT)
    with refused("fine", "codes of the shape (8, 4), not (8, 5)"):
        check_fine(fine[:, 1:], coarse, LAYOUT)
    unknown = fine.copy()
    unknown[3, 2] = CODES  # the code that stands for "not known yet"
    with refused("fine", f"code {CODES} in codebook 3, frame 2; allowed: 0 to {CODES - 1}"):
        check_fine(unknown, coarse, LAYOUT)
    with refused("fine", "frame 0 is not that of the coarse stage"):
        check_fine(np.roll(fine, 1, axis=1), coarse, LAYOUT)


def test_sound_is_checked_for_length_and_finite_numbers() -> None:
    sound = np.zeros(640, np.float32)
    check_sound(sound, 2, 320)
    with refused("codec", "639 samples for 2 frames, not 640"):
        check_sound(sound[1:], 2, 320)
    sound[7] = np.nan
    with refused("codec", "samples that are no finite numbers"):
        check_sound(sound, 2, 320)
