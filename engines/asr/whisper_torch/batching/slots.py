"""Assigns rows to requests, which join and leave between steps, and reads their answers."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engines.asr.whisper_torch.batching.kv_cache import DecoderState, NewRow, StepKind, upload
from engines.asr.whisper_torch.network.cuda_graphs import KernelLauncher, StepShape
from engines.asr.whisper_torch.network.decoder import cross_keys_values, forced_decode, scores
from engines.asr.whisper_torch.network.weights import ModelWeights

MAX_STEPPED_PROMPT_TOKENS = 16
"Prompts longer than this are read at once; shorter ones take one step per token, in graphs."

ROW_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TOKEN_BUCKETS = (64, 128, 256, 448)
"Numbers of rows and of tokens that graphs are captured for."
MAX_STEPS_AHEAD = 2
"Steps that are launched before it is known which rows are done, so that the device never idles."

ENCODER_POSITION_STEP = 250
"Encoder positions that graphs are captured for are multiples of this: 5 s."


@dataclass(frozen=True, slots=True)
class GeneratedTokens:
    """Tokens of an answer without the end token, and its scores."""

    tokens: tuple[int, ...]
    logprob: float
    "Mean log probability of the tokens and the end token."
    no_speech: float
    has_ended: bool
    "True: the answer ended by itself; False: it reached its limit."


@dataclass(eq=False, slots=True)
class SlotRange:
    """The rows of one answer.

    Ranges are compared by identity: the next answer in the same rows has a range of its own.
    """

    first: int
    "First row; the answer has `new.beam_size` rows."
    new: NewRow
    encoder_positions: int
    "Encoder positions that it attends to."
    length: int
    "Upper limit of its tokens at the next step, counted here without asking the device."


class SlotTable:
    """The rows of one model and their users; used by one thread."""

    def __init__(
        self, weights: ModelWeights, state: DecoderState, launcher: KernelLauncher
    ) -> None:
        self._weights, self._state, self._launcher = weights, state, launcher
        self._slot_ranges: list[SlotRange] = []
        self._is_taken = [False] * state.rows
        is_cuda = weights.device.type == "cuda"
        self._done_flags = torch.zeros(state.rows, dtype=torch.int64, pin_memory=is_cuda)
        self._done_event = torch.cuda.Event() if is_cuda else None
        self._queried: list[SlotRange] | None = None
        "Ranges in use when the device was last asked which rows are done; None: it has replied."
        self._steps_since_query = 0
        "Number of steps launched since then."

    @property
    def slot_ranges(self) -> Sequence[SlotRange]:
        """The ranges in use."""
        return self._slot_ranges

    def find_free(self, rows: int) -> int | None:
        """Returns the lowest row from which on `rows` rows are free; None if there is none."""
        for first in range(self._state.rows - rows + 1):
            if not any(self._is_taken[first : first + rows]):
                return first
        return None

    def join(self, first: int, new: NewRow, encoded: torch.Tensor) -> SlotRange:
        """Starts an answer in free rows.

        first: from `find_free`. encoded: encoder output, shape (positions, width).
        """
        audio = cross_keys_values(self._weights.decoder, self._weights.shape, encoded)
        self._state.fill_rows(first, new, audio)
        read_tokens = 0
        if len(new.prompt) > MAX_STEPPED_PROMPT_TOKENS:
            read_tokens = self._read_prompt(first, new, audio)
        slot_range = SlotRange(first, new, audio.shape[3], read_tokens + 1)
        self._slot_ranges.append(slot_range)
        for row in range(first, first + new.beam_size):
            self._is_taken[row] = True
        return slot_range

    def leave(self, slot_range: SlotRange) -> None:
        """Frees the rows of an answer; does nothing if they are free already."""
        if slot_range not in self._slot_ranges:
            return
        self._slot_ranges.remove(slot_range)
        for row in range(slot_range.first, slot_range.first + slot_range.new.beam_size):
            self._is_taken[row] = False
        self._state.free(
            slot_range.first, slot_range.new.beam_size
        )  # last: a broken device fails here

    def step(self) -> None:
        """Launches the computation of one token for all rows; does not wait for it."""
        end = max(slot_range.first + slot_range.new.beam_size for slot_range in self._slot_ranges)
        tokens = max(slot_range.length for slot_range in self._slot_ranges)
        encoder_positions = max(slot_range.encoder_positions for slot_range in self._slot_ranges)
        kind = StepKind.of(slot_range.new.kind for slot_range in self._slot_ranges)
        is_full = all(
            slot_range.encoder_positions == encoder_positions for slot_range in self._slot_ranges
        )
        self._launcher.step(
            graph_shape(self._state, end, tokens, encoder_positions, kind, is_full=is_full)
        )
        self._steps_since_query += 1
        max_tokens = self._state.shape.text_positions
        for slot_range in self._slot_ranges:
            slot_range.length = min(slot_range.length + 1, max_tokens)

    def ended(self) -> list[SlotRange]:
        """Returns the answers that are known to be done.

        A GPU replies while it computes the next step. This waits for the reply only when the GPU is
        `MAX_STEPS_AHEAD` steps behind. A CPU is never behind.
        """
        if self._queried is None and self._slot_ranges:
            self._done_flags.copy_(self._state.done, non_blocking=True)
            if self._done_event is not None:
                self._done_event.record()
            self._queried, self._steps_since_query = list(self._slot_ranges), 0
        if self._queried is None:
            return []
        if self._done_event is not None and not self._done_event.query():
            if self._steps_since_query < MAX_STEPS_AHEAD:
                return []
            self._done_event.synchronize()
        flags, queried = self._done_flags.tolist(), self._queried
        self._queried = None
        return [
            slot_range
            for slot_range in queried
            if flags[slot_range.first] and slot_range in self._slot_ranges
        ]

    def answers(self, slot_ranges: Sequence[SlotRange]) -> list[GeneratedTokens]:
        """Returns the tokens of answers that are done."""
        if not slot_ranges:
            return []
        answers = self._state.answers(
            [(slot_range.first, slot_range.new.beam_size > 1) for slot_range in slot_ranges]
        )
        return [
            self._generated_tokens(slot_range.new, *answer)
            for slot_range, answer in zip(slot_ranges, answers, strict=True)
        ]

    def _generated_tokens(
        self, new: NewRow, length: float, logprob: float, no_speech: float, *tokens: float
    ) -> GeneratedTokens:
        chosen = [int(token) for token in tokens[len(new.prompt) : int(length)]]
        has_ended = bool(chosen) and chosen[-1] == self._state.special.end
        count = max(1, len(chosen))
        text = chosen[:-1] if has_ended else chosen
        return GeneratedTokens(tuple(text), logprob / count, no_speech, has_ended)

    def _read_prompt(self, first: int, new: NewRow, audio: torch.Tensor) -> int:
        """Reads the prompt without its last token, at once. Returns the number of tokens read."""
        weights, state = self._weights, self._state
        tokens = upload(torch.tensor(new.prompt[:-1]), state.device)
        output, keys_values, _ = forced_decode(weights.decoder, weights.shape, tokens, audio)
        rows = slice(first, first + new.beam_size)
        state.self_cache[:, :, rows, :, : len(tokens)] = keys_values[:, :, None]
        state.position[rows] = len(tokens)
        start = new.prompt.index(state.special.start)
        if start < len(tokens) and state.special.no_speech is not None:
            probabilities = scores(weights.decoder, output[start]).softmax(0)
            state.no_speech[rows] = probabilities[state.special.no_speech]
        return len(tokens)


def graph_shape(
    state: DecoderState,
    rows: int,
    tokens: int,
    encoder_positions: int,
    kind: StepKind = StepKind.PLAIN,
    *,
    is_full: bool = False,
) -> StepShape:
    """Returns the smallest shape with a graph that covers a step.

    rows, tokens, encoder_positions: rows, tokens and encoder positions that the step needs.
    is_full: all rows attend to exactly `encoder_positions`.
    """
    max_tokens, max_positions = state.shape.text_positions, state.shape.audio_positions
    rounded_positions = min(
        -(-encoder_positions // ENCODER_POSITION_STEP) * ENCODER_POSITION_STEP, max_positions
    )
    return StepShape(
        rows=min(next((b for b in ROW_BUCKETS if b >= rows), rows), state.rows),
        tokens=min(next((b for b in TOKEN_BUCKETS if b >= tokens), max_tokens), max_tokens),
        encoder_positions=rounded_positions,
        kind=kind,
        is_full=is_full and encoder_positions == rounded_positions,
    )
