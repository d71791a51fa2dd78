"""Parts of the transcription API: subtitles, languages, names and its description."""

import json

import msgspec
import pytest
from faster_whisper.tokenizer import _LANGUAGE_CODES
from openapi_spec_validator import validate

from engines.base import Segment, TokenLogprob
from media.files.upload_spool import UploadSpools
from pipeline.services import EngineSet
from pipeline.transcription.recording import Transcriber
from server.config.sections.limits import LimitsConfig
from serving.remote.models import RemoteModels
from tests.media.files.thread_decoder import ThreadDecoder
from tests.pipeline.fakes import LoudVads
from tests.web.openai.transcriptions.harness import Cards
from web.openai.routes import routes
from web.openai.transcriptions.door import AudioDoor
from web.openai.transcriptions.fields import TranscriptionFields, TranslationFields
from web.openai.transcriptions.formats import logprobs, srt, usage, vtt
from web.openai.transcriptions.languages import NAMES, code_of, name_of
from web.openai.transcriptions.validation import is_known
from web.openapi import document


def test_every_language_of_whisper_has_a_name() -> None:
    assert set(NAMES) == set(_LANGUAGE_CODES)
    assert len(set(NAMES.values())) == len(NAMES)
    assert all(code_of(code) == code and code_of(name) == code for code, name in NAMES.items())
    assert name_of("en") == "english"
    assert name_of("xx") == "xx"


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ("de", "de"),
        (" DE ", "de"),
        ("de-CH", "de"),
        ("zh_TW", "zh"),
        ("Mandarin", "zh"),
        ("Haitian Creole", "ht"),
        ("yue", "yue"),
        ("klingon", None),
        ("d", None),
        ("", None),
    ],
)
def test_languages_have_several_spellings(sent: str, code: str | None) -> None:
    assert code_of(sent) == code


def test_subtitles_escape_markup_and_count_beyond_an_hour() -> None:
    segments = [
        Segment(" a < b\n\n& c ", 3_599_999.6, 3_600_500.0),
        Segment("1 --> 2", 36_000_000, 36_000_001),
    ]
    assert srt(segments) == (
        "1\n01:00:00,000 --> 01:00:00,500\na < b & c\n\n"
        "2\n10:00:00,000 --> 10:00:00,001\n1 --> 2\n\n"
    )
    assert vtt(segments) == (
        "WEBVTT\n\n01:00:00.000 --> 01:00:00.500\na &lt; b &amp; c\n\n"
        "10:00:00.000 --> 10:00:00.001\n1 --&gt; 2\n\n"
    )
    assert (srt([]), vtt([])) == ("", "WEBVTT\n\n")


def test_no_subtitle_is_empty() -> None:
    """Players drop an empty WebVTT cue; a cue beyond the end of the audio is cut to nothing."""
    segments = [Segment("hello", 1500.2, 1500.4), Segment("there", 2000.0, 2000.0)]
    assert srt(segments).splitlines()[1::4] == [
        "00:00:01,500 --> 00:00:01,501",
        "00:00:02,000 --> 00:00:02,001",
    ]


@pytest.mark.parametrize(("audio_ms", "seconds"), [(0, 0), (1, 1), (1000, 1), (2999.9, 3)])
def test_usage_counts_started_seconds(audio_ms: float, seconds: int) -> None:
    assert usage(audio_ms).seconds == seconds


def test_a_token_may_be_a_part_of_a_character() -> None:
    (one,) = logprobs([TokenLogprob("ü".encode()[:1], -0.1)])
    assert (one.token, one.bytes) == ("\ufffd", (0xC3,))


@pytest.mark.parametrize(
    ("name", "in_transcriptions", "in_translations"),
    [
        ("model", True, True),
        ("language", True, False),
        ("languages[]", True, False),
        ("languages", True, False),
        ("chunking_strategy[type]", True, False),
        ("whatever", False, False),
        ("", False, False),
    ],
)
def test_each_endpoint_knows_its_own_fields(
    name: str, in_transcriptions: bool, in_translations: bool
) -> None:
    assert is_known(name, TranscriptionFields) is in_transcriptions
    assert is_known(name, TranslationFields) is in_translations


def test_the_api_description_contains_the_fields() -> None:
    spools = UploadSpools()
    door = AudioDoor(
        Transcriber(EngineSet(LoudVads(), {}, {}, {})),
        Cards(),
        spools,
        ThreadDecoder(),
        LimitsConfig().as_limits().transcriptions,
        RemoteModels(),
        None,
    )
    described = json.loads(
        msgspec.json.encode(document(routes(door), title="t", version="1", description="d"))
    )
    validate(described)
    form = described["components"]["schemas"]["TranscriptionForm"]
    assert set(form["required"]) == {"file", "model"}
    assert form["properties"]["file"]["format"] == "binary"
    assert {"timestamp_granularities[]", "stream", "beam_size"} < set(form["properties"])
    assert form["properties"]["response_format"]["enum"] == [
        "diarized_json",
        "json",
        "srt",
        "text",
        "verbose_json",
        "vtt",
    ]
    assert all(
        route.max_body_bytes is None or route.max_body_bytes > spools.limits.max_bytes
        for route in routes(door)
    )
