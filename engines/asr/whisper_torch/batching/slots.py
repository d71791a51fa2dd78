"""Which request has which rows: joining and leaving between steps, and what the device tells."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engines.asr.whisper_torch.batching.kv_cache import DecoderState, NewRow, StepKind
from engines.asr.whisper_torch.network.cuda_graphs import KernelLauncher, StepShape
from engines.asr.whisper_torch.network.decoder import cross_keys_values, forced_decode, scores
from engines.asr.whisper_torch.network.pinned_upload import upload
from engines.asr.whisper_torch.network.weights import ModelWeights

READ_AT_ONCE = 16
"Prompts longer than this are read in one go; shorter ones take a step per token, in graphs."

ROW_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SAID_BUCKETS = (64, 128, 256, 448)
AHEAD = 2
"Steps that are launched before the device has told who is done: it never runs dry."

HEARD_STEP = 250
"Encoder positions: 5 s."


@dataclass(frozen=True, slots=True)
class GeneratedTokens:
    """An answer's tokens without the end, and its scores."""

    tokens: tuple[int, ...]
    logprob: float
    "Mean over its tokens and the end."
    no_speech: float
    has_ended: bool
    "By itself; else it reached its limit."


@dataclass(eq=False, slots=True)
class SlotRange:
    """The rows of one answer. Who has them next may want the same: that is another seat."""

    first: int
    new: NewRow
    heard: int
    length: int
    "Tokens at the next step, counted here: the device is not asked."


class SlotTable:
    """Owned by one thread. `capacity` rows of one model."""

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
        "Who was there when the device was last asked who is done; None: it has told."
        self._launched = 0
        "Steps since then."

    @property
    def seats(self) -> Sequence[SlotRange]:
        return self._seats

    def room(self, rows: int) -> int | None:
        """The first of so many free neighbours, the lowest there are; None: there are none."""
        for first in range(self._state.rows - rows + 1):
            if not any(self._is_taken[first : first + rows]):
                return first
        return None

    def join(self, first: int, new: NewRow, encoded: torch.Tensor) -> SlotRange:
        """Begin an answer to `encoded` (positions, width) in rows that `room` gave."""
        audio = cross_keys_values(self._weights.decoder, self._weights.shape, encoded)
        self._state.put(first, new, audio)
        given = 0
        if len(new.prompt) > READ_AT_ONCE:
            given = self._read(first, new, audio)
        seat = SlotRange(first, new, audio.shape[3], given + 1)
        self._seats.append(seat)
        for row in range(first, first + new.beam_size):
            self._is_taken[row] = True
        return seat

    def leave(self, seat: SlotRange) -> None:
        """Its rows are free for the next step. Nothing when it has left."""
        if seat not in self._seats:
            return
        self._seats.remove(seat)
        for row in range(seat.first, seat.first + seat.new.beam_size):
            self._is_taken[row] = False
        self._state.free(seat.first, seat.new.beam_size)  # last: a broken device fails here

    def step(self) -> None:
        """One token for everybody. Returns when it is launched."""
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
        """Who is known to be done. A GPU answers while it computes the next step, and is waited for
        only when it is behind by `AHEAD` steps; a CPU has always computed what it was told."""
        if self._asked is None and self._seats:
            self._flags.copy_(self._state.done, non_blocking=True)
            if self._told is not None:
                self._told.record()
            self._asked, self._launched = list(self._seats), 0
        if self._asked is None:
            return []
        if self._told is not None and not self._told.query():
            if self._launched < AHEAD:
                return []
            self._told.synchronize()
        flags, asked = self._flags.tolist(), self._asked
        self._asked = None
        return [seat for seat in asked if flags[seat.first] and seat in self._seats]

    def answers(self, seats: Sequence[SlotRange]) -> list[GeneratedTokens]:
        """Of those that have ended."""
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
        """The prompt but its last token, at once; how many tokens that were."""
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
    """The smallest shape of those that graphs are captured for. `is_even`: all listen to `heard`
    positions."""
    most, longest = state.shape.text_positions, state.shape.audio_positions
    looked_at = min(-(-heard // HEARD_STEP) * HEARD_STEP, longest)
    return StepShape(
        rows=min(next((b for b in ROW_BUCKETS if b >= rows), rows), state.rows),
        said=min(next((b for b in SAID_BUCKETS if b >= said), most), most),
        heard=looked_at,
        kind=kind,
        is_full=is_even and heard == looked_at,
    )
