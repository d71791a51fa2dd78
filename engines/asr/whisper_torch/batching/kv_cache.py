"""State of the rows between steps, in buffers that never move: CUDA graphs keep their addresses."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import torch

from engines.asr.whisper_torch.checkpoint import ModelShape, SpecialTokens

_INTS = (
    *("position", "prompt", "limit", "done", "start_position", "is_timed", "last_time", "seed"),
    *("group", "width", "is_beam_open", "has_best", "best_length", "encoder_positions"),
)
_FLOATS = ("temperature", "score", "logprob", "no_speech", "best_score", "best_logprob")

NO_SCORE = -1.0e9
"Score of a beam that does not count yet, as in transformers."


class StepKind(IntEnum):
    """The ways to choose tokens that a step must support."""

    PLAIN = 0
    "The most probable token that is not suppressed."
    TIMED = 1
    "Greedy search like PLAIN, with the rules of timestamps."
    SAMPLED = 2
    "Search like TIMED, with tokens drawn at random at a temperature."
    BEAM = 3
    "Search like TIMED, with beams. Rows continue other rows, so all keys and values are copied."
    MIXED = 4
    "All of these."

    @staticmethod
    def of(kinds: Iterable["StepKind"]) -> "StepKind":
        """Returns the kind of a step that supports all of these."""
        found = set(kinds)
        return StepKind.MIXED if {StepKind.SAMPLED, StepKind.BEAM} <= found else max(found)


@dataclass(frozen=True, slots=True)
class NewRow:
    """The request for one answer, which takes one row, or `beam_size` rows."""

    prompt: tuple[int, ...]
    "First tokens; the start token is among them."
    limit: int
    "Most tokens, prompt included; at most the model's text positions."
    is_timed: bool = False
    "True: the answer has timestamps, and their rules apply."
    beam_size: int = 1
    temperature: float = 0.0
    "Above 0: each token is drawn at random. Not with a beam."
    seed: int = 0
    "Seed of the random tokens: equal seeds give equal tokens, whatever the other rows are."
    suppressed: tuple[int, ...] | None = None
    "Tokens that are never written; None: those of the checkpoint."

    @property
    def kind(self) -> StepKind:
        """Kind of step that this request needs."""
        if self.beam_size > 1:
            return StepKind.BEAM
        if self.temperature:
            return StepKind.SAMPLED
        return StepKind.TIMED if self.is_timed else StepKind.PLAIN


class DecoderState:
    """Buffers of `rows` rows on the device.

    The number fields below, of shape (rows,), are views of two buffers, so that few copies write a
    row.
    """

    position: torch.Tensor
    "Position of the token that the next step reads."
    prompt: torch.Tensor
    "Number of tokens that are given, not chosen."
    limit: torch.Tensor
    done: torch.Tensor
    "1: the row is free or finished, and its results do not change."
    start_position: torch.Tensor
    "Position of the start token in the prompt."
    is_timed: torch.Tensor
    last_time: torch.Tensor
    "Last timestamp written; 0 before the first."
    seed: torch.Tensor
    group: torch.Tensor
    "First row of the beam; without a beam the row itself."
    width: torch.Tensor
    "Number of rows of the beam; 1: no beam."
    is_beam_open: torch.Tensor
    "1: the running beams may still become better than the finished ones."
    has_best: torch.Tensor
    "1: this row holds one of its beam's finished answers (see `best`)."
    best_length: torch.Tensor
    encoder_positions: torch.Tensor
    "Number of encoder positions that the row attends to."
    temperature: torch.Tensor
    score: torch.Tensor
    "Score of a running beam, as in transformers."
    logprob: torch.Tensor
    "Sum of the log probabilities of the chosen tokens, relative to the allowed ones."
    no_speech: torch.Tensor
    "No-speech probability at the start token."
    best_score: torch.Tensor
    best_logprob: torch.Tensor

    def __init__(
        self,
        shape: ModelShape,
        special: SpecialTokens,
        rows: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.rows, self.shape, self.special = rows, shape, special
        self.device = device
        self.ints = torch.zeros(len(_INTS), rows, dtype=torch.int64, device=device)
        self.floats = torch.zeros(len(_FLOATS), rows, device=device)
        for i, name in enumerate(_INTS):
            setattr(self, name, self.ints[i])
        for i, name in enumerate(_FLOATS):
            setattr(self, name, self.floats[i])
        self.done.fill_(1)
        torch.arange(rows, out=self.group)
        self.width.fill_(1)
        self.encoder_positions.fill_(1)
        length = shape.text_positions + 1
        self.tokens = torch.full((rows, length), special.end, device=device)
        self.best = torch.full((rows, length), special.end, device=device)
        "Finished answers of beams, one per row."
        self.suppressed_mask = torch.zeros(rows, shape.vocabulary, dtype=torch.bool, device=device)
        heads, width = shape.decoder_heads, shape.head_width
        self_cache = (2, shape.decoder_layers, rows, heads, shape.text_positions, width)
        self.self_cache = torch.zeros(self_cache, dtype=dtype, device=device)
        "Keys and values of the tokens (self-attention)."
        cross_cache = (2, shape.decoder_layers, rows, heads, shape.audio_positions, width)
        self.cross_cache = torch.zeros(cross_cache, dtype=dtype, device=device)
        "Keys and values of the encoder's output (cross-attention)."
        self.indices = torch.arange(max(shape.vocabulary, length, *cross_cache), device=device)
        "0, 1, 2, ..., for masks and indices."
        self.visible = torch.zeros((), dtype=dtype, device=device)
        self.hidden = torch.full((), -torch.inf, dtype=dtype, device=device)
        "Values that attention adds to a score: 0 for a visible position, else minus infinity."
        self.suppressed_first_mask = self.mask(special.suppressed_first)
        self._masks: dict[tuple[int, ...], torch.Tensor] = {}

    def mask(self, tokens: tuple[int, ...]) -> torch.Tensor:
        """Returns a mask of shape (vocabulary,) that is true at `tokens`."""
        mask = torch.zeros(self.shape.vocabulary, dtype=torch.bool)
        mask[list(tokens)] = True
        return upload(mask, self.device)

    def fill_rows(self, first: int, new: NewRow, audio: torch.Tensor) -> None:
        """Starts an answer in the rows `first` to `first + beam_size - 1`.

        audio: keys and values from `decoder.cross_keys_values`, shape (2, layers, heads, positions,
        head width).
        """
        rows = slice(first, first + new.beam_size)
        ints = {
            "prompt": len(new.prompt),
            "limit": new.limit,
            "start_position": new.prompt.index(self.special.start),
            "is_timed": int(new.is_timed),
            "seed": new.seed,
            "group": first,
            "width": new.beam_size,
            "is_beam_open": 1,
            "encoder_positions": audio.shape[3],
        }
        floats = {"temperature": new.temperature, "best_score": NO_SCORE}
        # One copy for all numbers: a double holds each of them exactly.
        values = [*(ints.get(name, 0) for name in _INTS), *(floats.get(n, 0) for n in _FLOATS)]
        packed = torch.tensor([*values, *new.prompt], dtype=torch.float64)
        column, prompt = upload(packed, self.device).split([len(values), len(new.prompt)])
        self.ints[:, rows] = column[: len(_INTS), None]
        self.floats[:, rows] = column[len(_INTS) :, None]
        self.score[first + 1 : rows.stop] = NO_SCORE  # else all rows of the beam would be the same
        self.tokens[rows, : len(new.prompt)] = prompt
        suppressed = self.special.suppressed if new.suppressed is None else new.suppressed
        if suppressed not in self._masks:
            self._masks[suppressed] = self.mask(suppressed)
        self.suppressed_mask[rows] = self._masks[suppressed]
        self.cross_cache[:, :, rows, :, : audio.shape[3]] = audio[:, :, None]

    def answers(self, firsts: Sequence[tuple[int, bool]]) -> list[list[float]]:
        """Returns the answers of rows or beams; waits for the device, with one copy for all.

        firsts: (first row, True for a beam). Each answer is a list: number of tokens, sum of log
        probabilities, no-speech probability, then the tokens.
        """
        parts = []
        for first, is_beam in firsts:
            row = slice(first, first + 1)
            tokens = self.best[first] if is_beam else self.tokens[first]
            length = self.best_length[row] if is_beam else self.position[row] + 1
            logprob = self.best_logprob[row] if is_beam else self.logprob[row]
            own = (length, logprob, self.no_speech[row], tokens)
            parts.append(torch.cat([part.double() for part in own]))
        found: list[list[float]] = torch.stack(parts).cpu().tolist()
        return found

    def free(self, first: int, count: int) -> None:
        """Frees `count` rows from `first` on."""
        self.done[first : first + count] = 1


def upload(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Returns a copy of `tensor` on the device, without waiting for it.

    From pinned memory the copy is queued behind the device's current work; from other memory the
    caller would wait. torch keeps the memory until the copy is done.
    """
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
