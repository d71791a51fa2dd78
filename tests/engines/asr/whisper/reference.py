"""faster-whisper's own `transcribe` on the same audio as our engine, for comparison."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from faster_whisper import WhisperModel
from faster_whisper.feature_extractor import FeatureExtractor

from core.audio import ASR_RATE_HZ, Pcm
from engines.asr.faster_whisper import FasterWhisper, Settings, create
from engines.asr.whisper.decode import SILENCE_PEAK
from engines.asr.whisper.features import LogMelExtractor, normalized_window
from engines.asr.whisper.windows import FRAME_SAMPLES, MAX_ITEM_SAMPLES, WINDOW_SAMPLES
from engines.base import AsrItem, AsrOptions
from media.files.decode import decode_file
from tests.shared import shared_data

Clip = tuple[str, Pcm]
"A name, with the position in its file in seconds, and the samples."

BATCH = 8


@dataclass(frozen=True, slots=True)
class Case:
    """The same options for both engines."""

    ours: AsrOptions
    theirs: Mapping[str, Any]


def case(
    *,
    language: str | None = "en",
    beam_size: int = 1,
    has_timestamps: bool = False,
    prompt: str = "",
    hotwords: str = "",
) -> Case:
    ours = AsrOptions(
        language=language,
        prompt=prompt,
        hotwords=hotwords,
        beam_size=beam_size,
        temperatures=(0.0,),
        timestamps="segment" if has_timestamps else "none",
        padding="max",
    )
    theirs = {
        "language": language,
        "initial_prompt": prompt or None,
        "hotwords": hotwords or None,
        "beam_size": beam_size,
        "temperature": 0.0,
        "without_timestamps": not has_timestamps,
        "condition_on_previous_text": False,
    }
    return Case(ours, theirs)


CASES = {
    "greedy": case(),
    "beam": case(beam_size=5),
    "timestamps": case(has_timestamps=True),
    "beam and timestamps": case(beam_size=5, has_timestamps=True),
    "prompt": case(prompt="turn on the lights", has_timestamps=True),
    "hotwords": case(hotwords="kitchen, garage", prompt="good morning"),
    "detection": case(language=None, has_timestamps=True),
}


def ours(folder: Path) -> FasterWhisper:
    """Creates our engine without the rejection rules that theirs lacks."""
    return create(
        Settings(model=str(folder), device="cpu", min_confidence=0, max_compression_ratio=1e9)
    )


class OurFeatures(FeatureExtractor):  # type: ignore[misc]  # the library has no types
    """Our features, for a waveform that ends with `silence_samples` of silence.

    Theirs differ in the last bit with the number of threads and the length of later audio, and such
    a difference changes a word that the model is unsure of.
    """

    silence_samples = 0

    def __call__(
        self, waveform: npt.NDArray[np.float32], padding: int = 160, chunk_length: int | None = None
    ) -> npt.NDArray[np.float32]:
        pcm = (waveform[: len(waveform) - self.silence_samples] * 32768).astype(np.int16)
        return normalized_window(
            LogMelExtractor(self).powers(pcm), (len(waveform) + padding) // FRAME_SAMPLES
        )


def theirs(folder: Path, *, has_our_features: bool) -> WhisperModel:
    model = WhisperModel(str(folder), device="cpu", compute_type="int8", local_files_only=True)
    if has_our_features:
        model.feature_extractor = OurFeatures(model.model.n_mels)
    return model


def transcribe_with_reference(model: WhisperModel, pcm: Pcm, case: Case) -> tuple[str, str]:
    """Returns text and language. Silence follows as samples, as when Whisper was trained; text
    after the clip's end does not count.

    Without timestamps they decode whole windows, so the silence ends with the clip's window. With
    them the next window begins at the last timestamp, and needs silence, too.
    """
    silence = WINDOW_SAMPLES - (len(pcm) if case.theirs["without_timestamps"] else 0)
    if isinstance(model.feature_extractor, OurFeatures):
        model.feature_extractor.silence_samples = silence
    samples = np.concatenate([pcm, np.zeros(silence, np.int16)]).astype(np.float32) / 32768
    segments, info = model.transcribe(samples, **case.theirs)
    texts = []
    for segment in segments:
        if segment.seek >= len(pcm) // FRAME_SAMPLES:
            break
        texts.append(segment.text)
    return "".join(texts).strip(), info.language


def differences(
    engine: FasterWhisper, reference: WhisperModel, some: Sequence[Clip], case: Case
) -> list[str]:
    """Returns the clips whose text or language differs."""
    found = []
    for start in range(0, len(some), BATCH):
        batch = some[start : start + BATCH]
        results = engine.decode([AsrItem(name, pcm, True, case.ours) for name, pcm in batch])
        for (name, pcm), result in zip(batch, results, strict=True):
            expected = transcribe_with_reference(reference, pcm, case)
            if (result.text, result.language) != expected:
                found.append(f"{name}: {result.language} {result.text!r}, theirs {expected}")
    return found


def recordings() -> list[Path]:
    """Returns all recordings."""
    root = shared_data()
    return [
        file
        for folder in ("commands", "speech", "noise", "music", "vad")
        for file in sorted((root / folder).rglob("*"))
        if file.suffix in {".wav", ".flac", ".mp3", ".ogg", ".opus"}
    ]


def parts(file: Path) -> Iterator[Clip]:
    """Yields the parts of a file that fit one window each, without digital silence, which never
    reaches our model."""
    pcm = decode_file(file)
    for start in range(0, len(pcm), MAX_ITEM_SAMPLES):
        part = pcm[start : start + MAX_ITEM_SAMPLES]
        if np.abs(part.astype(np.int32)).max() >= SILENCE_PEAK:
            yield f"{file.relative_to(shared_data())}@{start // ASR_RATE_HZ}", part


def clips() -> Iterator[Clip]:
    for file in recordings():
        yield from parts(file)
