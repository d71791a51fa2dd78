"""Codec that computes clips of any length in segments, over memory that is allocated once."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from core.errors import EngineError
from engines.base.codec import CodecInfo, Codes, Samples
from engines.codec.segments import ClipSegment, batches, cut, join_codes, join_sound
from engines.codec.settings import CPU_SEGMENT_S, GPU_ROWS, GPU_SEGMENT_S, Settings
from engines.codec.torch_layers.streams import StepDecoder, TorchDecodeStreams

MIN_FRAMES = 8
"""Shortest segment in frames; silence fills shorter ones. EnCodec's first convolution mirrors six
frames at the start of a clip. With fewer, the result would depend on the other clips."""

STEP_FRAMES = 25
"Frames of one step of a clip that is decoded step by step: two seconds of Mimi."


@dataclass(slots=True)
class ClipPlace:
    """Place in a clip up to which it is decoded."""

    clip: int
    "Index of the clip."
    frame: int = 0
    "Next frame."


class CodecNetwork(Protocol):
    """The weights of a codec, which compute whole clips."""

    def encode(self, sound: Any, codebooks: int) -> Any:
        """Returns the codes, shape (rows, codebooks, frames). `sound`: shape (rows, 1, samples),
        whole frames."""
        ...

    def decode(self, codes: Any) -> Any:
        """Returns the sound, shape (rows, samples). `codes`: shape (rows, codebooks, frames)."""
        ...

    def stream_decoder(self, rows: int, max_frames: int) -> StepDecoder | None:
        """Returns a decoder with the state of `rows` streams; None if the codec has none."""
        ...


class SegmentedCodec:
    """An `engines.base.codec.CodecModel`."""

    def __init__(self, network: CodecNetwork, info: CodecInfo, settings: Settings) -> None:
        """Allocates the buffers. Raises EngineError if an overlap has no whole frame, or a segment
        is not longer."""
        self._network = network
        device = resolve_device(settings)
        is_gpu = device != "cpu"
        segment_s = settings.segment_s or (GPU_SEGMENT_S if is_gpu else CPU_SEGMENT_S)
        frames_per_s = info.rate_hz / info.frame_samples
        self.segment_frames = round(segment_s * frames_per_s)
        self.overlap_frames = max(1, round(settings.overlap_s * frames_per_s))
        self._rows = settings.rows or (GPU_ROWS if is_gpu else 1)
        self.info = replace(info, max_batch=self._rows)
        samples = self.segment_frames * info.frame_samples
        self._sound = torch.zeros(self._rows, 1, samples, device=device)
        "Sound of the segments of one batch. Everything behind a shorter segment is silence."
        shape = (self._rows, info.codebooks[-1], self.segment_frames)
        self._codes = torch.zeros(shape, dtype=torch.long, device=device)
        "Codes of the segments of one batch."
        self._streams = (
            self.open_streams(self._rows, max_frames=STEP_FRAMES) if info.can_stream else None
        )
        "Rows in which clips are decoded step by step, if the codec can do that."

    @property
    def buffer_bytes(self) -> int:
        """Size of the buffers, which stays as it is from the start."""
        state = self._streams.buffers if self._streams else ()
        return sum(int(buffer.nbytes) for buffer in (self._sound, self._codes, *state))

    def encode(self, clips: Sequence[Samples], codebooks: int) -> list[Codes]:
        """Returns the codes of each clip. See `CodecModel.encode`."""
        self._check_codebooks(codebooks)
        size = self.info.frame_samples
        frames = [-(-len(clip) // size) for clip in clips]
        codes = [np.zeros((1, codebooks, count), np.int16) for count in frames]
        with torch.inference_mode():
            for batch in self.batches_of(frames):
                longest = max(batch[0].frames, MIN_FRAMES)
                for row, segment in enumerate(batch):
                    start = segment.start * size
                    piece = clips[segment.clip][start : start + segment.frames * size]
                    self._sound[row, 0, : len(piece)] = torch.from_numpy(piece)
                    self._sound[row, 0, len(piece) : longest * size] = 0
                sound = self._sound[: len(batch), :, : longest * size]
                computed = self._network.encode(sound, codebooks).cpu().numpy()
                for row, segment in enumerate(batch):
                    join_codes(codes[segment.clip], segment, computed[row])
        return codes

    def decode(self, clips: Sequence[Codes]) -> list[Samples]:
        """Returns the sound of each clip. See `CodecModel.decode`."""
        codebooks = {clip.shape[1] for clip in clips}
        if len(codebooks) > 1:
            raise ValueError(f"all clips have one number of codebooks, not {sorted(codebooks)}")
        frames = [clip.shape[2] for clip in clips]
        size = self.info.frame_samples
        sound = [np.zeros(count * size, np.float32) for count in frames]
        for count in codebooks:
            self._check_codebooks(count)
            if self._streams is not None:
                self._decode_in_steps(self._streams, clips, sound)
                continue
            with torch.inference_mode():
                for batch in self.batches_of(frames):
                    self._decode_batch(clips, batch, count, sound)
        return sound

    def open_streams(self, capacity: int, *, max_frames: int = 1) -> TorchDecodeStreams:
        """Allocates the memory of `capacity` streams. See `CodecModel.open_streams`."""
        decoder = self._network.stream_decoder(capacity, max_frames)
        if decoder is None:
            raise EngineError("codec", self.info.name, "it cannot decode frame by frame")
        return TorchDecodeStreams(decoder, self.info, capacity, max_frames)

    def close(self) -> None:
        """Does nothing: the end of the worker process frees the model."""

    def _decode_in_steps(
        self, streams: TorchDecodeStreams, clips: Sequence[Codes], sound: list[Samples]
    ) -> None:
        """Decodes each clip as a stream that keeps its state from step to step, so that nothing is
        computed twice and no seam is left. A row whose clip is over takes the next one."""
        waiting = sorted(range(len(clips)), key=lambda clip: clips[clip].shape[2])
        active: dict[int, ClipPlace] = {}
        try:
            while waiting or active:
                while waiting and len(active) < self._rows:
                    active[streams.open()] = ClipPlace(waiting.pop())
                rests = [clips[place.clip].shape[2] - place.frame for place in active.values()]
                frames = min(STEP_FRAMES, max(*rests, 1))
                steps = {
                    stream: _step_codes(clips[place.clip], place.frame, frames)
                    for stream, place in active.items()
                }
                for stream, computed in streams.step(steps).items():
                    place = active[stream]
                    start = place.frame * self.info.frame_samples
                    rest = sound[place.clip][start:]
                    rest[: len(computed)] = computed[: len(rest)]
                    place.frame += frames
                    if place.frame >= clips[place.clip].shape[2]:
                        streams.close(stream)
                        del active[stream]
        finally:
            for stream in active:
                streams.close(stream)

    def _decode_batch(
        self,
        clips: Sequence[Codes],
        batch: list[ClipSegment],
        codebooks: int,
        sound: list[Samples],
    ) -> None:
        longest = max(batch[0].frames, MIN_FRAMES)
        for row, segment in enumerate(batch):
            end = segment.start + segment.frames
            piece = clips[segment.clip][0, :, segment.start : end].astype(np.int64)
            if piece.min() < 0 or piece.max() >= self.info.codebook_size:
                raise ValueError(f"a code is outside 0 to {self.info.codebook_size - 1}")
            self._codes[row, :codebooks, : segment.frames] = torch.from_numpy(piece)
            self._codes[row, :codebooks, segment.frames : longest] = 0
        codes = self._codes[: len(batch), :codebooks, :longest]
        computed = self._network.decode(codes).float().cpu().numpy()
        for row, segment in enumerate(batch):
            join_sound(sound[segment.clip], segment, computed[row], self.info.frame_samples)

    def batches_of(self, frames: Sequence[int]) -> Iterable[list[ClipSegment]]:
        """Yields the segments of clips of these lengths, in the batches in which they are
        computed."""
        segments = cut(frames, self.segment_frames, self.overlap_frames)
        return batches([segment for segment in segments if segment.frames], self._rows)

    def _check_codebooks(self, codebooks: int) -> None:
        if codebooks not in self.info.codebooks:
            raise ValueError(f"{codebooks} codebooks; allowed: {self.info.codebooks}")


def resolve_device(settings: Settings) -> str:
    """Returns the device on which the codec runs, by torch's name."""
    if settings.threads:
        torch.set_num_threads(settings.threads)
    if settings.device != "auto":
        return settings.device
    return "cuda" if torch.cuda.is_available() else "cpu"


def _step_codes(codes: Codes, frame: int, frames: int) -> npt.NDArray[np.int16]:
    """Returns the codes of one step, shape (codebooks, frames). Behind the end of the clip they
    are 0."""
    step = np.zeros((codes.shape[1], frames), np.int16)
    rest = codes[0, :, frame : frame + frames]
    step[:, : rest.shape[1]] = rest
    return step
