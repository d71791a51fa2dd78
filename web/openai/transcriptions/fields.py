"""Form fields of both operations, with their ranges and a sentence for each."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from engines.base import AsrPadding, AsrTask
from pipeline.transcription.options import MAX_BEAM_SIZE

MAX_KEYWORDS = 100

ResponseFormat = Literal["json", "text", "srt", "verbose_json", "vtt"]
Granularity = Literal["segment", "word"]

Probability = Annotated[float, Meta(ge=0, le=1)]
Milliseconds = Annotated[int, Meta(ge=0, le=10_000)]
BeamSize = Annotated[int, Meta(ge=1, le=MAX_BEAM_SIZE)]


File = Annotated[
    str,
    Meta(
        description="Audio in any common container; it may come first or last.",
        extra_json_schema={"format": "binary"},
    ),
]


class VadChunkingStrategy(Struct, frozen=True, kw_only=True):
    """The hosted service's way to cut a recording. It is checked, and has no effect here."""

    type: Literal["server_vad"]
    threshold: Probability = 0.5
    prefix_padding_ms: Milliseconds = 300
    silence_duration_ms: Milliseconds = 200


class CommonFields(Struct, frozen=True, kw_only=True):
    """Fields of both operations. Those from `beam_size` on are extensions of Earshot."""

    model: Annotated[
        str, Meta(description="Of `GET /v1/models`; `whisper-1` and `gpt-...` mean `default`.")
    ]
    response_format: ResponseFormat = "json"
    prompt: Annotated[
        str, Meta(description="Text that comes before: its spelling and names become likelier.")
    ] = ""
    temperature: Annotated[
        Probability,
        Meta(description="0: as the engine is set up, which tries higher ones where it is unsure."),
    ] = 0
    beam_size: Annotated[
        BeamSize | None, Meta(description="Hypotheses that are followed at once; 1 is greedy.")
    ] = None
    hotwords: Annotated[str, Meta(description="Names and terms to expect.")] = ""
    prefix: Annotated[
        str,
        Meta(
            description=(
                "Raw decoder prefix with its special tokens, in place of language, task, prompt,"
                " hotwords and keywords."
            )
        ),
    ] = ""
    padding: Annotated[
        AsrPadding | None, Meta(description="How much of its window an utterance fills.")
    ] = None
    no_speech_threshold: Annotated[
        Probability | None,
        Meta(description="No-speech probability above which unsure words are rejected."),
    ] = None


class TranslationFields(CommonFields, frozen=True, kw_only=True):
    """Fields of `POST /v1/audio/translations`: any language, which is detected, into English."""


class TranscriptionFields(CommonFields, frozen=True, kw_only=True):
    """Fields of `POST /v1/audio/transcriptions`."""

    language: Annotated[
        str, Meta(description="ISO 639-1, like `de`, or an English name; none: it is detected.")
    ] = ""
    languages: Annotated[
        tuple[str, ...], Meta(description="Where it is detected: among these.")
    ] = field(default=(), name="languages[]")
    keywords: Annotated[
        tuple[str, ...], Meta(max_length=MAX_KEYWORDS, description="As `hotwords`, one by one.")
    ] = field(default=(), name="keywords[]")
    timestamp_granularities: Annotated[
        tuple[Granularity, ...], Meta(description="`word` with verbose_json only; none: segment.")
    ] = field(default=(), name="timestamp_granularities[]")
    include: Annotated[tuple[Literal["logprobs"], ...], Meta(description="With json only.")] = (
        field(default=(), name="include[]")
    )
    stream: Annotated[bool, Meta(description="Server-sent events; with json and text only.")] = (
        False
    )
    chunking_strategy: Annotated[
        Literal["auto"] | VadChunkingStrategy,
        Meta(description="Checked, and without effect: recordings are cut at pauses."),
    ] = "auto"
    task: Annotated[AsrTask, Meta(description="`translate`: into English.")] = "transcribe"


class TranslationForm(TranslationFields, frozen=True, kw_only=True):
    """Form of a translation, with the audio. Only for the API's documentation."""

    file: File


class TranscriptionForm(TranscriptionFields, frozen=True, kw_only=True):
    """Form of a transcription, with the audio. Only for the API's documentation."""

    file: File
