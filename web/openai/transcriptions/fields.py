"""Form fields of both operations, with their ranges and a sentence for each."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from engines.base import AsrPadding, AsrTask
from pipeline.transcription.options import MAX_BEAM_SIZE

MAX_KEYWORDS = 100
"Largest number of keywords in one request."

MAX_KNOWN_SPEAKERS = 4
"Largest number of voices that a request names, as with OpenAI's service."

MAX_SPEAKER_NAME_CHARS = 64
"Longest name of a speaker. It is repeated in each segment."

TranslationFormat = Literal["json", "text", "srt", "verbose_json", "vtt"]
ResponseFormat = Literal[TranslationFormat, "diarized_json"]
Granularity = Literal["segment", "word"]
Included = Literal["logprobs", "earshot.speaker"]

Probability = Annotated[float, Meta(ge=0, le=1)]
Milliseconds = Annotated[int, Meta(ge=0, le=10_000)]
BeamSize = Annotated[int, Meta(ge=1, le=MAX_BEAM_SIZE)]


File = Annotated[
    str,
    Meta(
        description=(
            "Audio in any common container. The part may come before or after the other fields."
        ),
        extra_json_schema={"format": "binary"},
    ),
]


class VadChunkingStrategy(Struct, frozen=True, kw_only=True):
    """OpenAI's way to cut a recording. It is checked, and has no effect here."""

    type: Literal["server_vad"]
    threshold: Probability = 0.5
    prefix_padding_ms: Milliseconds = 300
    silence_duration_ms: Milliseconds = 200


class CommonFields(Struct, frozen=True, kw_only=True):
    """Fields of both operations. Those from `beam_size` on are extensions of Earshot."""

    model: Annotated[
        str,
        Meta(
            description=(
                "Name of a model from `GET /v1/models`; `whisper-1` and `gpt-...` mean `default`."
            )
        ),
    ]
    prompt: Annotated[
        str,
        Meta(
            description="Text that precedes the audio. Its spelling and names become more likely."
        ),
    ] = ""
    temperature: Annotated[
        Probability,
        Meta(
            description=(
                "Sampling temperature. 0: as the engine is configured; it tries higher values if"
                " it is unsure."
            )
        ),
    ] = 0
    beam_size: Annotated[
        BeamSize | None,
        Meta(description="Number of hypotheses that are followed in parallel; 1 is greedy."),
    ] = None
    hotwords: Annotated[
        str, Meta(description="Names and terms that are expected in the speech.")
    ] = ""
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
        AsrPadding | None,
        Meta(description="How far a short utterance is padded towards the model's window."),
    ] = None
    no_speech_threshold: Annotated[
        Probability | None,
        Meta(
            description=(
                "No-speech probability above which words with a low probability are rejected."
            )
        ),
    ] = None


class TranslationFields(CommonFields, frozen=True, kw_only=True):
    """Fields of `POST /v1/audio/translations`: any language, which is detected, into English."""

    response_format: TranslationFormat = "json"


class TranscriptionFields(CommonFields, frozen=True, kw_only=True):
    """Fields of `POST /v1/audio/transcriptions`."""

    response_format: ResponseFormat = "json"
    language: Annotated[
        str,
        Meta(
            description=(
                "ISO 639-1 code like `de`, or English name. Without it, the language is detected."
            )
        ),
    ] = ""
    languages: Annotated[
        tuple[str, ...], Meta(description="Languages from which the detection chooses.")
    ] = field(default=(), name="languages[]")
    keywords: Annotated[
        tuple[str, ...],
        Meta(max_length=MAX_KEYWORDS, description="The same as `hotwords`, as a list."),
    ] = field(default=(), name="keywords[]")
    timestamp_granularities: Annotated[
        tuple[Granularity, ...],
        Meta(description="`word` only with verbose_json. Default: `segment`."),
    ] = field(default=(), name="timestamp_granularities[]")
    include: Annotated[
        tuple[Included, ...],
        Meta(
            description=(
                "Additional data in the response: `logprobs` with json, `earshot.speaker` with"
                " verbose_json."
            )
        ),
    ] = field(default=(), name="include[]")
    known_speaker_names: Annotated[
        tuple[Annotated[str, Meta(max_length=MAX_SPEAKER_NAME_CHARS)], ...],
        Meta(
            max_length=MAX_KNOWN_SPEAKERS,
            description="Names of the voices in `known_speaker_references[]`.",
        ),
    ] = field(default=(), name="known_speaker_names[]")
    known_speaker_references: Annotated[
        tuple[str, ...],
        Meta(
            max_length=MAX_KNOWN_SPEAKERS,
            description="Recordings of single voices, 2 to 10 s each, as data URLs.",
        ),
    ] = field(default=(), name="known_speaker_references[]")
    stream: Annotated[
        bool, Meta(description="Return server-sent events. Only with json, text, diarized_json.")
    ] = False
    chunking_strategy: Annotated[
        Literal["auto"] | VadChunkingStrategy,
        Meta(description="Checked, but without effect: recordings are always split at pauses."),
    ] = "auto"
    task: Annotated[AsrTask, Meta(description="`translate` returns English text.")] = "transcribe"


class TranslationForm(TranslationFields, frozen=True, kw_only=True):
    """Form of a translation, with the audio. Only for the API's documentation."""

    file: File


class TranscriptionForm(TranscriptionFields, frozen=True, kw_only=True):
    """Form of a transcription, with the audio. Only for the API's documentation."""

    file: File
