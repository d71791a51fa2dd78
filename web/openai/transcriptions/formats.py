"""Formats a transcript in all formats of the API."""

from collections.abc import Sequence
from html import escape
from math import ceil
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from engines.base import AsrPadding, Segment, TokenLogprob, Word
from pipeline.transcription.diarisation.segments import SpeakerTimes, spoken_segments
from pipeline.transcription.recording import Transcript
from web.openai.transcriptions.languages import name_of
from web.openai.transcriptions.request import TranscriptionRequest

# These functions format segments as subtitles (SubRip, WebVTT) and as a table.


def srt(segments: Sequence[Segment]) -> str:
    """Returns SubRip: numbered cues, with a comma before the milliseconds."""
    return "".join(
        f"{number}\n{_span(segment, ',')}\n{_line(segment.text)}\n\n"
        for number, segment in enumerate(segments, 1)
    )


def vtt(segments: Sequence[Segment]) -> str:
    """Returns WebVTT. Characters that would count as markup are escaped."""
    cues = (
        f"{_span(segment, '.')}\n{escape(_line(segment.text), quote=False)}\n\n"
        for segment in segments
    )
    return "".join(("WEBVTT\n\n", *cues))


def tsv(segments: Sequence[Segment]) -> str:
    """Returns tab-separated values, as Whisper's own tool writes them: start and end in ms."""
    rows = (
        f"{segment.start_ms:.0f}\t{segment.end_ms:.0f}\t{_line(segment.text)}\n"
        for segment in segments
    )
    return "".join(("start\tend\ttext\n", *rows))


def _line(text: str) -> str:
    """Returns the text on one line: an empty line would end the cue."""
    return " ".join(text.split())


def _span(segment: Segment, point: str) -> str:
    """Returns the times of a cue. A cue that ends where it begins would not be shown: it gets 1 ms.
    point: decimal separator."""
    start_ms = round(segment.start_ms)
    end_ms = max(round(segment.end_ms), start_ms + 1)
    return f"{_clock(start_ms, point)} --> {_clock(end_ms, point)}"


def _clock(ms: int, point: str) -> str:
    seconds, rest_ms = divmod(ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}{point}{rest_ms:03}"


JSON = "application/json"
TEXT = "text/plain"
VTT = "text/vtt"

MODEL_HEADER = "X-Earshot-Model"
"Header with the name of the model that gave the answer."

ENGLISH = "english"
"Language of a translation in `verbose_json`."


class DurationUsage(Struct, frozen=True):
    """Length of the audio in whole seconds, rounded up."""

    seconds: int
    type: Literal["duration"] = "duration"


class Logprob(Struct, frozen=True):
    """A token and its log probability."""

    token: str
    logprob: float
    bytes: tuple[int, ...]


class LanguageCode(Struct, frozen=True):
    """ISO 639-1 code of a detected language."""

    code: str


class VerboseSegment(Struct, frozen=True):
    """A segment, with the fields of OpenAI's API. `start` and `end` are in seconds from the
    beginning of the recording, `seek` is `start` in hundredths of a second."""

    id: int
    seek: int
    start: float
    end: float
    text: str
    tokens: tuple[int, ...]
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float
    speaker: str | UnsetType = UNSET
    "Person who speaks longest in it, if the request asks for speakers. Extension of Earshot."


class VerboseWord(Struct, frozen=True):
    """A word. Times are in seconds."""

    word: str
    start: float
    end: float
    speaker: str | UnsetType = UNSET
    "Person who says it, if the request asks for speakers. Extension of Earshot."


class DiarizedSegment(Struct, frozen=True, tag="transcript.text.segment"):
    """Words that one person said without a break. Also the event for them in a stream. Times are in
    seconds."""

    id: str
    start: float
    end: float
    text: str
    speaker: str
    "Name of a known voice; A, B, ... for others, in the order in which they first speak."


class TranscriptionResponse(Struct, frozen=True, kw_only=True):
    """Answer in JSON.

    With `json` it has text and usage, `logprobs` if they were requested, and `languages` if the
    language was detected. With `verbose_json` it has the other fields.
    """

    task: Literal["transcribe", "translate"] | UnsetType = UNSET
    language: str | UnsetType = UNSET
    duration: float | UnsetType = UNSET
    text: str
    segments: tuple[VerboseSegment, ...] | UnsetType = UNSET
    words: tuple[VerboseWord, ...] | UnsetType = UNSET
    logprobs: tuple[Logprob, ...] | UnsetType = UNSET
    languages: tuple[LanguageCode, ...] | UnsetType = UNSET
    padding: AsrPadding | UnsetType = UNSET
    """Padding that the model got, if the requested padding does not suit the model. Extension of
    Earshot."""
    usage: DurationUsage


class DiarizedResponse(Struct, frozen=True):
    """Answer in JSON with `diarized_json`."""

    task: Literal["transcribe"]
    duration: float
    text: str
    segments: tuple[DiarizedSegment, ...]
    usage: DurationUsage
    padding: AsrPadding | UnsetType = UNSET
    "Length of the decoded windows, as in `TranscriptionResponse`."


def answer(
    job: TranscriptionRequest, transcript: Transcript, speakers: SpeakerTimes | None = None
) -> tuple[bytes, str]:
    """Returns the body and its content type. `speakers`: who speaks when, if that was asked for."""
    match job.response_format:
        case "text":
            return f"{transcript.text}\n".encode(), TEXT
        case "srt":
            return srt(transcript.segments).encode(), TEXT
        case "vtt":
            return vtt(transcript.segments).encode(), VTT
        case "json":
            return msgspec.json.encode(_plain(job, transcript)), JSON
        case "verbose_json":
            return msgspec.json.encode(_verbose(job, transcript, speakers)), JSON
        case "diarized_json":
            assert speakers is not None
            return msgspec.json.encode(_diarized(job, transcript, speakers)), JSON


def diarized_segments(
    segments: Sequence[Segment], words: Sequence[Word], speakers: SpeakerTimes
) -> tuple[DiarizedSegment, ...]:
    """Returns the segments in the form of `diarized_json`."""
    return tuple(
        DiarizedSegment(
            f"seg_{number:03}",
            _seconds(segment.start_ms),
            _seconds(segment.end_ms),
            segment.text,
            segment.speaker,
        )
        for number, segment in enumerate(spoken_segments(segments, words, speakers), 1)
    )


def usage(audio_ms: float) -> DurationUsage:
    """Returns the usage for audio of this length."""
    return DurationUsage(ceil(audio_ms / 1000))


def logprobs(tokens: Sequence[TokenLogprob]) -> tuple[Logprob, ...]:
    """Converts tokens. A token may be a part of a character: then only `bytes` identifies it."""
    return tuple(
        Logprob(token.data.decode(errors="replace"), token.logprob, tuple(token.data))
        for token in tokens
    )


def detected_languages(
    job: TranscriptionRequest, language: str
) -> tuple[LanguageCode, ...] | UnsetType:
    """Returns the detected language. Unset if the caller named one, or there was no speech."""
    is_omitted = job.options.language or job.options.prefix or not language
    return UNSET if is_omitted else (LanguageCode(language),)


def _plain(job: TranscriptionRequest, transcript: Transcript) -> TranscriptionResponse:
    return TranscriptionResponse(
        text=transcript.text,
        logprobs=logprobs(transcript.tokens) if job.has_logprobs else UNSET,
        languages=detected_languages(job, transcript.language),
        padding=job.used_padding or UNSET,
        usage=usage(transcript.audio_ms),
    )


def _diarized(
    job: TranscriptionRequest, transcript: Transcript, speakers: SpeakerTimes
) -> DiarizedResponse:
    return DiarizedResponse(
        "transcribe",
        _seconds(transcript.audio_ms),
        transcript.text,
        diarized_segments(transcript.segments, transcript.words, speakers),
        usage(transcript.audio_ms),
        job.used_padding or UNSET,
    )


def _verbose(
    job: TranscriptionRequest, transcript: Transcript, speakers: SpeakerTimes | None
) -> TranscriptionResponse:
    task = job.options.task
    segments = tuple(
        segment_json(index, segment, _speaker(segment, speakers))
        for index, segment in enumerate(transcript.segments)
    )
    words = tuple(word_json(word, _speaker(word, speakers)) for word in transcript.words)
    return TranscriptionResponse(
        task=task,
        language=ENGLISH if task == "translate" else name_of(transcript.language),
        duration=_seconds(transcript.audio_ms),
        text=transcript.text,
        segments=segments if "segment" in job.granularities else UNSET,
        words=words if "word" in job.granularities else UNSET,
        padding=job.used_padding or UNSET,
        usage=usage(transcript.audio_ms),
    )


def _speaker(part: Segment | Word, speakers: SpeakerTimes | None) -> str | UnsetType:
    return UNSET if speakers is None else speakers.speaker(part.start_ms, part.end_ms)


def segment_json(index: int, segment: Segment, speaker: str | UnsetType = UNSET) -> VerboseSegment:
    """Returns a segment in the form of `verbose_json`. index: number of the segment, from 0."""
    return VerboseSegment(
        id=index,
        seek=int(segment.start_ms / 10),
        start=_seconds(segment.start_ms),
        end=_seconds(segment.end_ms),
        text=segment.text,
        tokens=segment.tokens,
        temperature=segment.temperature,
        avg_logprob=segment.avg_logprob,
        compression_ratio=segment.compression_ratio,
        no_speech_prob=segment.no_speech_prob,
        speaker=speaker,
    )


def word_json(word: Word, speaker: str | UnsetType = UNSET) -> VerboseWord:
    """Returns a word in the form of `verbose_json`."""
    start, end = _seconds(word.start_ms), _seconds(word.end_ms)
    return VerboseWord(word.text.strip(), start, end, speaker)


def _seconds(ms: float) -> float:
    return round(ms / 1000, 3)
