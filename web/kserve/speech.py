"""Recognition of speech as a model of KServe's protocol: sound in, text out."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from core.audio import ASR_RATE_HZ, Pcm
from core.errors import RequestError
from engines.asr.whisper.prompt import parse
from engines.base import AsrInfo, AsrOptions
from pipeline.transcription.recogniser import Recogniser
from pipeline.transcription.recording import Transcriber
from web.kserve.sequences import Sequences
from web.kserve.tensors import BYTES, InferRequest, Tensor, invalid

TEXT_PREFIX = "TEXT_PREFIX"

_ENGLISH_TAGS = ("<|en|>", "<|transcribe|>", "<|translate|>")
"Special tokens that an English-only model does not have, and needs not, to write English."


def prefix_options(prefix: str | None, info: AsrInfo) -> AsrOptions:
    """Returns the options that a prefix means to this recogniser. None: the request has no
    prefix, so the language is detected. Empty: English, as on Triton.

    Raises RequestError for a prefix that the recogniser cannot follow.
    """
    if prefix is None:
        return AsrOptions()
    if not prefix.strip():
        return AsrOptions(language="en" if "en" in info.languages else None)
    if "prefix" not in info.supports:
        return _without_prefix(prefix, info)
    if "task" not in info.supports:
        for tag in _ENGLISH_TAGS:
            prefix = prefix.replace(tag, "")
    return AsrOptions(prefix=prefix)


def _without_prefix(prefix: str, info: AsrInfo) -> AsrOptions:
    """Returns the options for a recogniser that takes no prefix: language, task and prompt."""
    parts = parse(prefix, info.languages, is_multilingual=True, param=TEXT_PREFIX)
    if parts.words:
        raise RequestError(
            f"Invalid {TEXT_PREFIX!r}: {info.name} (model {info.model}) cannot continue given"
            " words.",
            code="unsupported_parameter",
            param=TEXT_PREFIX,
        )
    tags = [tag.strip("<|>") for tag in parts.tags]
    languages = [tag for tag in tags if tag in info.languages]
    if len(languages) > 1:
        raise invalid(TEXT_PREFIX, f"{info.name} takes one language")
    return AsrOptions(
        language=languages[0] if languages else None,
        task="translate" if "translate" in tags else "transcribe",
        prompt=parts.earlier,
    )


WAV = "WAV"
WAV_LENS = "WAV_LENS"
REFERENCE_LENGTH = "REFERENCE_LENGTH"
TRANSCRIPTS = "TRANSCRIPTS"

IGNORED = ("LANGUAGE", "TEXT_NORM")
"Inputs of SenseVoice. Other models do not know its numbers of languages."

MAX_BATCH = 64
"Largest number of recordings of one request, as in the deployment that the clients were made for."

MAX_CHUNK_S = 2 * 3600
"Longest recording in seconds, as of an uploaded one."

INPUTS: tuple[dict[str, Any], ...] = (
    {"name": WAV, "datatype": "FP32", "shape": [-1, -1]},
    {"name": WAV_LENS, "datatype": "INT32", "shape": [-1, 1]},
    {"name": TEXT_PREFIX, "datatype": BYTES, "shape": [-1, 1]},
)
OPTIONAL_INPUTS = frozenset({WAV_LENS, TEXT_PREFIX})
OUTPUTS: tuple[dict[str, Any], ...] = ({"name": TRANSCRIPTS, "datatype": BYTES, "shape": [-1]},)


@dataclass(frozen=True, slots=True)
class SpeechItem:
    """One recording of a request."""

    pcm: Pcm
    prefix: str | None
    "Raw decoder prefix; None: the request has none."


@dataclass(frozen=True, slots=True)
class SequenceStep:
    """The place of a request in a sequence."""

    id: int | str
    is_start: bool
    is_end: bool


def speech_items(request: InferRequest) -> list[SpeechItem]:
    """Returns the recordings of a request. Raises RequestError."""
    known = (WAV, WAV_LENS, REFERENCE_LENGTH, TEXT_PREFIX, *IGNORED)
    for name in request.inputs:
        if name not in known:
            allowed = f"{WAV}, {WAV_LENS}, {TEXT_PREFIX}"
            raise RequestError(
                f"Unknown input {name[:64]!r}. Allowed: {allowed}.",
                code="unsupported_parameter",
                param=name[:64],
            )
    wav = request.inputs.get(WAV)
    if wav is None:
        raise RequestError(
            f"Missing input {WAV!r}: FP32 samples of 16 kHz, one recording per row.",
            code="missing_required_parameter",
            param=WAV,
        )
    if wav.datatype != "FP32" or len(wav.shape) not in (1, 2) or isinstance(wav.values, tuple):
        raise invalid(WAV, "it must be FP32 with the shape [recordings, samples]")
    count, width = wav.shape if len(wav.shape) == 2 else (1, wav.shape[0])
    if not 1 <= count <= MAX_BATCH:
        raise invalid(WAV, f"it has {count} recordings; 1 to {MAX_BATCH} are allowed")
    if width > MAX_CHUNK_S * ASR_RATE_HZ:
        raise invalid(WAV, f"a recording is longer than {MAX_CHUNK_S} s")
    lengths = _lengths(request, count, width)
    prefixes = _prefixes(request.inputs.get(TEXT_PREFIX), count)
    rows = wav.values.reshape(count, width)
    return [
        SpeechItem(_samples(rows[row, :length]), prefix)
        for row, (length, prefix) in enumerate(zip(lengths, prefixes, strict=True))
    ]


def sequence_step(request: InferRequest) -> SequenceStep | None:
    """Returns the place of the request in a sequence; None if it belongs to none. Raises
    RequestError."""
    step_id = request.parameters.get("sequence_id", 0)
    if step_id in (0, ""):
        return None
    if isinstance(step_id, bool) or not isinstance(step_id, int | str) or len(str(step_id)) > 128:
        raise invalid("sequence_id", "it must be a number or a text of at most 128 characters")
    start, end = (request.parameters.get(f"sequence_{name}", False) for name in ("start", "end"))
    return SequenceStep(step_id, start is True, end is True)


def transcripts(texts: Sequence[str]) -> Tensor:
    """Returns the output. It has one dimension, because clients that stream read no other."""
    return Tensor(TRANSCRIPTS, BYTES, (len(texts),), tuple(text.encode() for text in texts))


class SpeechModels:
    """Transcribes the recordings of requests, in the queue of all recordings."""

    def __init__(
        self,
        transcriber: Transcriber,
        sequences: Sequences,
        recogniser: Callable[[str], Recogniser],
    ) -> None:
        """`recogniser`: returns a recogniser by name. Raises NotFound model_not_found."""
        self._transcriber, self._sequences = transcriber, sequences
        self._recogniser = recogniser

    def options(self, model: str, items: Sequence[SpeechItem]) -> list[AsrOptions]:
        """Returns the options of each recording. Raises RequestError."""
        info = self._recogniser(model).info
        found = [prefix_options(item.prefix, info) for item in items]
        for wanted in dict.fromkeys(found):
            self._check(model, wanted)
        return found

    async def transcribe(
        self, model: str, items: Sequence[SpeechItem], options: Sequence[AsrOptions]
    ) -> list[str]:
        """Returns the text of each recording. Raises OverloadedError, EngineError, possibly in a
        group."""
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(self._transcribe(model, item.pcm, option))
                for item, option in zip(items, options, strict=True)
            ]
        return [task.result() for task in running]

    async def push(
        self,
        caller: str,
        model: str,
        step: SequenceStep,
        items: Sequence[SpeechItem],
        options: Sequence[AsrOptions],
    ) -> str:
        """Adds sound to a sequence of this caller, and returns its text so far. Raises
        RequestError, OverloadedError, EngineError."""
        if len(items) != 1:
            raise invalid(WAV, "a request of a sequence has one recording")
        return await self._sequences.push(
            (caller, model, step.id),
            model,
            options[0],
            items[0].pcm,
            is_start=step.is_start,
            is_end=step.is_end,
        )

    def _check(self, model: str, options: AsrOptions) -> None:
        try:
            self._transcriber.check(model, options)
        except RequestError as error:
            if error.param == "prefix":
                error.param = TEXT_PREFIX
            raise

    async def _transcribe(self, model: str, pcm: Pcm, options: AsrOptions) -> str:
        async with self._transcriber.open(model, options) as recording:
            await recording.push(pcm)
            recording.end()
            return (await recording.transcript()).text


def _lengths(request: InferRequest, count: int, width: int) -> list[int]:
    lengths = request.inputs.get(WAV_LENS) or request.inputs.get(REFERENCE_LENGTH)
    if lengths is None:
        return [width] * count
    if lengths.datatype not in ("INT32", "INT64") or isinstance(lengths.values, tuple):
        raise invalid(lengths.name, "it must be INT32")
    found = [int(length) for length in lengths.values]
    if len(found) != count:
        raise invalid(lengths.name, f"it has {len(found)} numbers for {count} recordings")
    if any(not 0 <= length <= width for length in found):
        raise invalid(lengths.name, f"a length is not 0 to {width}, the samples of {WAV}")
    return found


def _prefixes(texts: Tensor | None, count: int) -> list[str | None]:
    if texts is None:
        return [None] * count
    if not isinstance(texts.values, tuple):
        raise invalid(TEXT_PREFIX, f"it must be {BYTES}")
    if len(texts.values) != count:
        raise invalid(TEXT_PREFIX, f"it has {len(texts.values)} texts for {count} recordings")
    try:
        return [text.decode() for text in texts.values]
    except UnicodeDecodeError:
        raise invalid(TEXT_PREFIX, "it is not UTF-8") from None


def _samples(row: Any) -> Pcm:
    """Returns samples of -1 to 1 as int16; louder ones are clipped. Raises RequestError."""
    if not np.isfinite(row).all():
        raise invalid(WAV, "a sample is not a finite number")
    scaled = np.rint(np.clip(row, -1.0, 1.0) * 32767.0)
    return np.ascontiguousarray(scaled, dtype=np.int16)
