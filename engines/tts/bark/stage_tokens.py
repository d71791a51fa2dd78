"""Inputs and outputs of each stage: prompts, windows, and the items that pass through the pools.

All of it is computed without a model, with the lengths that a `BarkLayout` says.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from engines.base.codec import Samples
from engines.tts.bark.layout import COARSE_CODEBOOKS, BarkLayout
from engines.tts.bark.voices import SpeakerPrompt, Tokens
from engines.tts.token_model.backend import AllowedIds, TokenRequest


def semantic_order(layout: BarkLayout, _position: int) -> AllowedIds:
    """Returns the ids that the semantic stage may write: any, or the end."""
    return AllowedIds(0, layout.semantic_ids, layout.semantic_stop)


def coarse_order(layout: BarkLayout, position: int) -> AllowedIds:
    """Returns the ids that the coarse stage may write: the codebooks take turns."""
    codebook = position % COARSE_CODEBOOKS
    return AllowedIds(first_coarse_id(layout, codebook), layout.codebook_size)


def first_coarse_id(layout: BarkLayout, codebook: int) -> int:
    """Returns the id of code 0 of a codebook in the coarse stage."""
    return layout.semantic_ids + codebook * layout.codebook_size


def pack_coarse(codes: Tokens, layout: BarkLayout) -> list[int]:
    """Returns the ids of frames, shape (COARSE_CODEBOOKS, frames): one frame after the other."""
    firsts = [first_coarse_id(layout, codebook) for codebook in range(COARSE_CODEBOOKS)]
    ids: list[int] = (codes.T + np.array(firsts)).flatten().tolist()
    return ids


def unpack_coarse(ids: Sequence[int], layout: BarkLayout) -> Tokens:
    """Returns the codes of whole frames, shape (COARSE_CODEBOOKS, frames)."""
    firsts = [[first_coarse_id(layout, codebook)] for codebook in range(COARSE_CODEBOOKS)]
    codes: Tokens = np.array(ids, np.int64).reshape(-1, COARSE_CODEBOOKS).T - np.array(firsts)
    return codes


@dataclass(eq=False, slots=True)
class SemanticItem:
    """A text on its way to semantic ids."""

    request: TokenRequest
    ids: list[int] = field(default_factory=list)
    "Ids that the stage wrote, without the id of the end."
    is_written: bool = False

    @classmethod
    def of(
        cls,
        text_ids: Sequence[int],
        prompt: SpeakerPrompt | None,
        layout: BarkLayout,
        *,
        max_ids: int,
        min_stop_chance: float,
        seed: int,
    ) -> "SemanticItem":
        """Packs a text, at most `layout.text_ids` ids, and a speaker prompt: their vectors are
        added up, place by place."""
        places = layout.text_ids
        text = [one + layout.text_offset for one in text_ids]
        text += [layout.text_pad] * (places - len(text))
        added = [] if prompt is None else prompt.semantic[-places:].tolist()
        added += [layout.semantic_stop] * (places - len(added))
        request = TokenRequest(
            (*text, layout.semantic_infer),
            max_ids,
            layout.semantic.temperature,
            layout.semantic.top_k,
            seed,
            tuple(added),
            min_stop_chance,
        )
        return cls(request)

    def next_request(self) -> TokenRequest | None:
        """Returns the only sequence of this stage, until it is written."""
        return None if self.is_written else self.request

    def push(self, ids: list[int], *, has_stop: bool) -> None:
        """Takes the ids that were written. `has_stop`: the last one is the end marker."""
        self.ids, self.is_written = ids[:-1] if has_stop else ids, True


class CoarseItem:
    """Semantic ids on their way to the first codebooks. They are written in windows: each sees the
    semantic ids around its place, and the coarse ids before it."""

    def __init__(
        self,
        semantic: Sequence[int],
        prompt: SpeakerPrompt | None,
        layout: BarkLayout,
        *,
        seed: int,
    ) -> None:
        self.total = layout.coarse_ids_of(len(semantic))
        "Number of ids to write."
        self._layout, self._seed = layout, seed
        semantic_before, coarse_before = _coarse_history(prompt, layout)
        self._semantic = [*semantic_before, *semantic]
        self._coarse = coarse_before
        "Ids of the history, then those that the stage wrote."
        self._semantic_start, self._coarse_start = len(semantic_before), len(coarse_before)

    @property
    def ids(self) -> list[int]:
        """Ids that the stage wrote."""
        return self._coarse[self._coarse_start :]

    def next_request(self) -> TokenRequest | None:
        """Returns the next window; None if all ids are written."""
        layout, written = self._layout, len(self._coarse) - self._coarse_start
        if written >= self.total:
            return None
        place = self._semantic_start + round(written / layout.coarse_per_semantic)
        start = max(0, place - layout.semantic_history_ids)
        seen = self._semantic[start : start + layout.coarse_input_ids]
        seen += [layout.coarse_pad] * (layout.coarse_input_ids - len(seen))
        before = self._coarse[-layout.coarse_history_ids :]
        return TokenRequest(
            (*seen, layout.coarse_infer, *before),
            min(layout.coarse_window_ids, self.total - written),
            layout.coarse.temperature,
            layout.coarse.top_k,
            self._seed + written,
        )

    def push(self, ids: list[int], *, has_stop: bool) -> None:
        """Takes the ids of a window. Its length is known, so there is no end marker."""
        assert not has_stop
        self._coarse += ids


@dataclass(frozen=True, slots=True)
class FineWindow:
    """Places of one window."""

    start: int
    "First frame of the window."
    fill: int
    "First frame of the window whose finer codes are computed, counted from `start`."


class FineItem:
    """Frames of the first codebooks on their way to whole frames, in windows of one length. Each
    window replaces the finer codes from its `fill` on."""

    def __init__(
        self, coarse: Tokens, prompt: SpeakerPrompt | None, layout: BarkLayout, *, seed: int
    ) -> None:
        """`coarse`: shape (COARSE_CODEBOOKS, frames)."""
        self.seed = seed
        frames, window, step = (
            coarse.shape[1],
            layout.fine_window_frames,
            layout.fine_history_frames,
        )
        history = np.zeros((layout.codebooks, 0), np.int64)
        if prompt is not None:
            history = prompt.fine[:, -step:]
        self._before, self._frames = history.shape[1], frames
        places = max(self._before + frames, window)
        # The code behind the last one stands for "not known yet".
        self._codes = np.full((places, layout.codebooks), layout.codebook_size, np.int64)
        self._codes[: self._before] = history.T
        self._codes[self._before : self._before + frames, :COARSE_CODEBOOKS] = coarse.T
        count = max(0, ceil((frames - (window - self._before)) / step)) + 1
        self._windows: list[FineWindow] = []
        for number in range(count):
            start = min(number * step, places - window)
            fill = min(self._before + number * step, places - step)
            self._windows.append(FineWindow(start, fill - start))
        self._length = window

    @property
    def next_window(self) -> FineWindow | None:
        """The window to compute now; None if there is none left."""
        return self._windows[0] if self._windows else None

    def window_codes(self) -> Tokens:
        """Returns the codes of the next window, shape (window, codebooks)."""
        start = self._windows[0].start
        return self._codes[start : start + self._length]

    def push(self, codes: Tokens) -> None:
        """Takes the finer codes of the next window, shape (window, codebooks)."""
        window = self._windows.pop(0)
        filled = slice(window.start + window.fill, window.start + self._length)
        self._codes[filled, COARSE_CODEBOOKS:] = codes[window.fill :, COARSE_CODEBOOKS:]

    @property
    def codes(self) -> Tokens:
        """Whole frames, shape (codebooks, frames)."""
        return self._codes[self._before : self._before + self._frames].T


@dataclass(eq=False, slots=True)
class SoundItem:
    """Frames on their way to sound."""

    codes: Tokens
    "Shape (codebooks, frames)."
    sound: Samples = field(default_factory=lambda: np.zeros(0, np.float32))


def _coarse_history(
    prompt: SpeakerPrompt | None, layout: BarkLayout
) -> tuple[list[int], list[int]]:
    """Returns the semantic and coarse ids of a speaker prompt that stand before the first window:
    the same stretch of the recording in both forms."""
    if prompt is None:
        return [], []
    ids = pack_coarse(prompt.coarse, layout)
    per_semantic = layout.coarse_per_semantic
    semantic = min(
        layout.semantic_history_ids,
        len(prompt.semantic) // 2 * 2,
        int(len(ids) / per_semantic),
    )
    if semantic == 0:
        return [], []
    coarse = ids[-round(semantic * per_semantic) :]
    # One frame less sounds better, as the makers of Bark found.
    return prompt.semantic[-semantic:].tolist(), coarse[:-COARSE_CODEBOOKS]
