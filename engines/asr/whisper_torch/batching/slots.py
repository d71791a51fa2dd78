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
    heard: int
    "Encoder positions that it attends to."
    length: int
    "Upper limit of its tokens at the next step, counted here without asking the device."


class SlotTable:
    """The rows of one model and their users; used by one thread."""

    def __init__(
        self, weights: ModelWeights, state: DecoderState, launcher: KernelLauncher
    ) -> None:
        self._weights, self._state, self._launcher = weights, state, launcher
        self._seats: list[SlotRange] = []
        self._is_taken = [False] * state.rows
        is_cuda = weights.device.type == "cuda"
        self._flags = torch.zeros(state.rows, dtype=torch.int64, pin_memory=is_cuda)
        self._told = torch.cuda.Event() if is_cuda else None
        self._asked: list[SlotRange] | None = None
        "Ranges at the last question which rows are done; None: it is answered."
        self._launched = 0
        "Steps launched since that question."

    @property
    def seats(self) -> Sequence[SlotRange]:
        """The ranges in use."""
        return self._seats

    def room(self, rows: int) -> int | None:
        """Returns the lowest row from which on `rows` rows are free; None if there is none."""
        for first in range(self._state.rows - rows + 1):
            if not any(self._is_taken[first : first + rows]):
                return first
        return None

    def join(self, first: int, new: NewRow, encoded: torch.Tensor) -> SlotRange:
        """Starts an answer in free rows.

        first: from `room`. encoded: encoder output, shape (positions, width).
        """
        audio = cross_keys_values(self._weights.decoder, self._weights.shape, encoded)
        self._state.put(first, new, audio)
        given = 0
        if len(new.prompt) > MAX_STEPPED_PROMPT_TOKENS:
            given = self._read(first, new, audio)
        seat = SlotRange(first, new, audio.shape[3], given + 1)
        self._seats.append(seat)
        for row in range(first, first + new.beam_size):
            self._is_taken[row] = True
        return seat

    def leave(self, seat: SlotRange) -> None:
        """Frees the rows of an answer; does nothing if they are free already."""
        if seat not in self._seats:
            return
        self._seats.remove(seat)
        for row in range(seat.first, seat.first + seat.new.beam_size):
            self._is_taken[row] = False
        self._state.free(seat.first, seat.new.beam_size)  # last: a broken device fails here

    def step(self) -> None:
        """Launches the computation of one token for all rows; does not wait for it."""
        end = max(seat.first + seat.new.beam_size for seat in self._seats)
        said = max(seat.length for seat in self._seats)
        heard = max(seat.heard for seat in self._seats)
        kind = StepKind.of(seat.new.kind for seat in self._seats)
        is_even = all(seat.heard == heard for seat in self._seats)
        self._launcher.step(shape_of(self._state, end, said, heard, kind, is_even=is_even))
        self._launched += 1
        most = self._state.shape.text_positions
        for seat in self._seats:
            seat.length = min(seat.length + 1, most)

    def ended(self) -> list[SlotRange]:
        """Returns the answers that are known to be done.

        A GPU answers while it computes the next step. It is waited for only when it is
        `MAX_STEPS_AHEAD` steps behind. A CPU is never behind.
        """
        if self._asked is None and self._seats:
            self._flags.copy_(self._state.done, non_blocking=True)
            if self._told is not None:
                self._told.record()
            self._asked, self._launched = list(self._seats), 0
        if self._asked is None:
            return []
        if self._told is not None and not self._told.query():
            if self._launched < MAX_STEPS_AHEAD:
                return []
            self._told.synchronize()
        flags, asked = self._flags.tolist(), self._asked
        self._asked = None
        return [seat for seat in asked if flags[seat.first] and seat in self._seats]

    def answers(self, seats: Sequence[SlotRange]) -> list[GeneratedTokens]:
        """Returns the tokens of answers that are done."""
        if not seats:
            return []
        told = self._state.answers([(seat.first, seat.new.beam_size > 1) for seat in seats])
        return [self._written(seat.new, *one) for seat, one in zip(seats, told, strict=True)]

    def _written(
        self, new: NewRow, length: float, logprob: float, no_speech: float, *tokens: float
    ) -> GeneratedTokens:
        spoken = [int(token) for token in tokens[len(new.prompt) : int(length)]]
        has_ended = bool(spoken) and spoken[-1] == self._state.special.end
        count = max(1, len(spoken))
        said = spoken[:-1] if has_ended else spoken
        return GeneratedTokens(tuple(said), logprob / count, no_speech, has_ended)

    def _read(self, first: int, new: NewRow, audio: torch.Tensor) -> int:
        """Reads the prompt without its last token, at once. Returns the number of tokens read."""
        weights, state = self._weights, self._state
        tokens = upload(torch.tensor(new.prompt[:-1]), state.device)
        output, kept, _ = forced_decode(weights.decoder, weights.shape, tokens, audio)
        rows = slice(first, first + new.beam_size)
        state.said[:, :, rows, :, : len(tokens)] = kept[:, :, None]
        state.position[rows] = len(tokens)
        start = new.prompt.index(state.special.start)
        if start < len(tokens) and state.special.no_speech is not None:
            chances = scores(weights.decoder, output[start]).softmax(0)
            state.no_speech[rows] = chances[state.special.no_speech]
        return len(tokens)


def shape_of(
    state: DecoderState,
    rows: int,
    said: int,
    heard: int,
    kind: StepKind = StepKind.PLAIN,
    *,
    is_even: bool = False,
) -> StepShape:
    """Returns the smallest shape with a graph that covers a step.

    rows, said, heard: rows, tokens and encoder positions that the step needs.
    is_even: all rows attend to exactly `heard` positions.
    """
    most, longest = state.shape.text_positions, state.shape.audio_positions
    looked_at = min(-(-heard // ENCODER_POSITION_STEP) * ENCODER_POSITION_STEP, longest)
    return StepShape(
        rows=min(next((b for b in ROW_BUCKETS if b >= rows), rows), state.rows),
        said=min(next((b for b in TOKEN_BUCKETS if b >= said), most), most),
        heard=looked_at,
        kind=kind,
        is_full=is_even and heard == looked_at,
    )
