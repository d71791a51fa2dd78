"""Everything that rows keep between steps, in buffers that never move: graphs hold addresses."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import torch

from engines.asr.whisper_torch.checkpoint import ModelShape, SpecialTokens
from engines.asr.whisper_torch.network.pinned_upload import upload

_INTS = (
    *("position", "prompt", "limit", "done", "start_at", "is_timed", "last_time", "seed"),
    *("group", "width", "open", "is_said", "best_length", "heard"),
)
_FLOATS = ("temperature", "score", "logprob", "no_speech", "best_score", "best_logprob")

NOWHERE = -1.0e9
"Score of a beam that does not count yet; transformers has the same."


class StepKind(IntEnum):
    """What a step must be able to choose."""

    PLAIN = 0
    "The likeliest token that is not suppressed."
    TIMED = 1
    "That, or by the rules of timestamps."
    DRAWN = 2
    "These, or at a temperature."
    BEAM = 3
    "PLAIN, TIMED, or beams, whose rows take over each other's keys and values: all are copied."
    MIXED = 4
    "Anything."

    @staticmethod
    def of(kinds: Iterable["StepKind"]) -> "StepKind":
        """That of a step for all of these."""
        found = set(kinds)
        return StepKind.MIXED if {StepKind.DRAWN, StepKind.BEAM} <= found else max(found)


@dataclass(frozen=True, slots=True)
class NewRow:
    """What a row starts from."""

    prompt: tuple[int, ...]
    "With the start token somewhere in it."
    limit: int
    "Tokens in all, prompt included; at most the model's text positions."
    is_timed: bool = False
    "Timestamps are said, by their rules."
    beam_size: int = 1
    temperature: float = 0.0
    "Above 0 each token is drawn; not with a beam."
    seed: int = 0
    "Of what is drawn: the same seed draws the same, whoever the neighbours are."
    suppressed: tuple[int, ...] | None = None
    "Never said. None: what the checkpoint says."

    @property
    def kind(self) -> StepKind:
        if self.beam_size > 1:
            return StepKind.BEAM
        if self.temperature:
            return StepKind.DRAWN
        return StepKind.TIMED if self.is_timed else StepKind.PLAIN


class DecoderState:
    """Buffers of `rows` rows. Fields of numbers are views of one buffer: a row is written by one
    copy."""

    position: torch.Tensor
    "Of the token that the next step reads."
    prompt: torch.Tensor
    "Tokens that are given, not chosen."
    limit: torch.Tensor
    done: torch.Tensor
    "1: steps leave the row as it is."
    start_at: torch.Tensor
    "Where in the prompt the transcript begins."
    is_timed: torch.Tensor
    last_time: torch.Tensor
    "The last timestamp said, 0 before the first."
    seed: torch.Tensor
    group: torch.Tensor
    "First row of the beam; for others the row itself."
    width: torch.Tensor
    "Rows of the beam; 1: none."
    open: torch.Tensor
    "Running beams may still become better than the best finished ones."
    is_said: torch.Tensor
    "Of a beam's finished answers, the one kept in this row exists."
    best_length: torch.Tensor
    heard: torch.Tensor
    "Encoder positions that the row listens to."
    temperature: torch.Tensor
    score: torch.Tensor
    "Of a running beam, as transformers counts it."
    logprob: torch.Tensor
    "Sum over the tokens chosen, among those allowed."
    no_speech: torch.Tensor
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
        self.heard.fill_(1)
        length = shape.text_positions + 1
        self.tokens = torch.full((rows, length), special.end, device=device)
        self.best = torch.full((rows, length), special.end, device=device)
        "Finished answers of beams."
        self.banned = torch.zeros(rows, shape.vocabulary, dtype=torch.bool, device=device)
        heads, width = shape.decoder_heads, shape.head_width
        said = (2, shape.decoder_layers, rows, heads, shape.text_positions, width)
        self.said = torch.zeros(said, dtype=dtype, device=device)
        "Keys and values of the tokens."
        audio = (2, shape.decoder_layers, rows, heads, shape.audio_positions, width)
        self.audio = torch.zeros(audio, dtype=dtype, device=device)
        "Keys and values of the encoder's output."
        self.numbers = torch.arange(max(shape.vocabulary, length, *audio), device=device)
        "0, 1, 2, ..."
        self.seen = torch.zeros((), dtype=dtype, device=device)
        self.unseen = torch.full((), -torch.inf, dtype=dtype, device=device)
        "What attention adds to a score."
        self.banned_first = self.mask(special.suppressed_first)
        self._masks: dict[tuple[int, ...], torch.Tensor] = {}

    def mask(self, tokens: tuple[int, ...]) -> torch.Tensor:
        """(vocabulary): true at `tokens`."""
        mask = torch.zeros(self.shape.vocabulary, dtype=torch.bool)
        mask[list(tokens)] = True
        return upload(mask, self.device)

    def put(self, first: int, new: NewRow, audio: torch.Tensor) -> None:
        """Begin in rows `first` to `first + beam_size - 1`. `audio`: what they listen to, from
        `decoder.listen`, (2, layers, heads, positions, head width)."""
        rows = slice(first, first + new.beam_size)
        ints = {
            "prompt": len(new.prompt),
            "limit": new.limit,
            "start_at": new.prompt.index(self.special.start),
            "is_timed": int(new.is_timed),
            "seed": new.seed,
            "group": first,
            "width": new.beam_size,
            "open": 1,
            "heard": audio.shape[3],
        }
        floats = {"temperature": new.temperature, "best_score": NOWHERE}
        # One copy for all of it: doubles hold every number there is here.
        numbers = [*(ints.get(name, 0) for name in _INTS), *(floats.get(n, 0) for n in _FLOATS)]
        packed = torch.tensor([*numbers, *new.prompt], dtype=torch.float64)
        column, prompt = upload(packed, self.device).split([len(numbers), len(new.prompt)])
        self.ints[:, rows] = column[: len(_INTS), None]
        self.floats[:, rows] = column[len(_INTS) :, None]
        self.score[first + 1 : rows.stop] = NOWHERE  # else all beams would be the same
        self.tokens[rows, : len(new.prompt)] = prompt
        suppressed = self.special.suppressed if new.suppressed is None else new.suppressed
        if suppressed not in self._masks:
            self._masks[suppressed] = self.mask(suppressed)
        self.banned[rows] = self._masks[suppressed]
        self.audio[:, :, rows, :, : audio.shape[3]] = audio[:, :, None]

    def answers(self, firsts: Sequence[tuple[int, bool]]) -> list[list[float]]:
        """Of rows or beams (first row, is a beam): tokens in all, sum of log probabilities, no
        speech, then the tokens. Waits for the device; one copy for all."""
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
        """Nobody wants these rows any more."""
        self.done[first : first + count] = 1
