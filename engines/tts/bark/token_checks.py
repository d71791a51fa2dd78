"""Checks of the tokens between the stages: range, length, and equal frames.

A wrong token would be read as something else by the next stage: out of the range of a table, or as
noise that nobody can explain. So each check names the stage that wrote it.
"""

from collections.abc import Sequence

import numpy as np

from core.errors import InvalidTokens
from engines.base.codec import Samples
from engines.tts.bark.layout import COARSE_CODEBOOKS, BarkLayout
from engines.tts.bark.settings import NAME
from engines.tts.bark.stage_tokens import coarse_order, unpack_coarse
from engines.tts.bark.voices import Tokens

TEXT, SEMANTIC, COARSE, FINE, CODEC = "text", "semantic", "coarse", "fine", "codec"
"Names of the stages. `text` is the tokenizer, which has no pool."


def check_text(ids: Sequence[int], layout: BarkLayout) -> None:
    """Raises InvalidTokens for an id that the semantic stage does not know as text."""
    most = layout.text_pad - layout.text_offset
    for place, one in enumerate(ids):
        if not 0 <= one < most:
            raise _invalid(TEXT, f"id {one} at place {place}; allowed: 0 to {most - 1}")


def check_semantic(ids: Sequence[int], max_ids: int, layout: BarkLayout) -> None:
    """Raises InvalidTokens for too many ids, or an id that is none of the semantic ones."""
    if len(ids) > max_ids:
        raise _invalid(SEMANTIC, f"{len(ids)} ids; allowed: at most {max_ids}")
    for place, one in enumerate(ids):
        if not 0 <= one < layout.semantic_ids:
            why = f"id {one} at place {place}; allowed: 0 to {layout.semantic_ids - 1}"
            raise _invalid(SEMANTIC, why)


def check_coarse(ids: Sequence[int], semantic_ids: int, layout: BarkLayout) -> Tokens:
    """Returns the codes, shape (COARSE_CODEBOOKS, frames). `semantic_ids`: number of ids of which
    they were made. Raises InvalidTokens for an incomplete frame, another number of frames, or an id
    that is not of the codebook whose turn it is."""
    if len(ids) % COARSE_CODEBOOKS:
        raise _invalid(COARSE, f"{len(ids)} ids are no whole frames of {COARSE_CODEBOOKS}")
    expected = layout.coarse_ids_of(semantic_ids)
    if len(ids) != expected:
        raise _invalid(COARSE, f"{len(ids)} ids for {semantic_ids} semantic ids, not {expected}")
    for place, one in enumerate(ids):
        allowed = coarse_order(layout, place)
        if not allowed.first <= one < allowed.first + allowed.count:
            last = allowed.first + allowed.count - 1
            raise _invalid(COARSE, f"id {one} at place {place}; allowed: {allowed.first} to {last}")
    return unpack_coarse(ids, layout)


def check_fine(codes: Tokens, coarse: Tokens, layout: BarkLayout) -> None:
    """Raises InvalidTokens for another shape, a code outside the codebook, or frames whose first
    codebooks are not those of the coarse stage."""
    expected = (layout.codebooks, coarse.shape[1])
    if codes.shape != expected:
        raise _invalid(FINE, f"codes of the shape {codes.shape}, not {expected}")
    wrong = np.argwhere((codes < 0) | (codes >= layout.codebook_size))
    if len(wrong):
        codebook, frame = wrong[0]
        why = f"code {codes[codebook, frame]} in codebook {codebook}, frame {frame}"
        raise _invalid(FINE, f"{why}; allowed: 0 to {layout.codebook_size - 1}")
    moved = np.argwhere((codes[:COARSE_CODEBOOKS] != coarse).any(0))
    if len(moved):
        raise _invalid(FINE, f"frame {moved[0][0]} is not that of the coarse stage")


def check_sound(sound: Samples, frames: int, frame_samples: int) -> None:
    """Raises InvalidTokens for another length, or for samples that are no numbers."""
    if len(sound) != frames * frame_samples:
        why = f"{len(sound)} samples for {frames} frames, not {frames * frame_samples}"
        raise _invalid(CODEC, why)
    if not np.isfinite(sound).all():
        raise _invalid(CODEC, "samples that are no finite numbers")


def _invalid(stage: str, why: str) -> InvalidTokens:
    return InvalidTokens("tts", NAME, f"stage {stage}: {why}")
