"""Transcripts that say who speaks: OpenAI's client against the API, and requests that are wrong.
Each level of the sound is a word and a voice."""

import asyncio
import json
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI
from openai.types.audio import (
    TranscriptionDiarized,
    TranscriptionTextDeltaEvent,
    TranscriptionTextDoneEvent,
    TranscriptionTextSegmentEvent,
)
from openai.types.audio.transcription_diarized import UsageDuration

from core.audio import Pcm
from core.conversation.speakers import SpeakerProfile
from engines.base import AsrOptions
from tests.server.http.harness import error_of
from tests.web.openai.transcriptions.harness import (
    ONE,
    THREE,
    TRANSLATIONS,
    TWO,
    Server,
    against,
    recording,
    until,
    voice_of,
    wav,
)

pytestmark = pytest.mark.live

TURNS = (ONE, 0, ONE, 0, TWO, 0, TWO, 0)
TALK = wav(recording(*TURNS, each_ms=600))
"Two people say two words each. The recogniser thinks that a word takes 1.2 s."

DIARIZED = {"response_format": "diarized_json"}


def data_url(pcm: Pcm) -> str:
    return f"data:audio/wav;base64,{b64encode(wav(pcm)).decode()}"


REFERENCE = data_url(recording(TWO, TWO, TWO))


def test_speakers_have_letters(tmp_path: Path) -> None:
    async def scene(server: Server) -> None:
        async with AsyncOpenAI(api_key="key", base_url=f"{server.url}/v1", max_retries=0) as client:
            answer: Any = await client.audio.transcriptions.create(
                model="gpt-4o-transcribe-diarize",
                file=("talk.wav", TALK),
                response_format="diarized_json",
                chunking_strategy="auto",
            )
        assert isinstance(answer, TranscriptionDiarized)
        assert (answer.task, answer.duration, answer.text) == ("transcribe", 4.8, "one one two two")
        assert [(one.id, one.text, one.speaker) for one in answer.segments] == [
            ("seg_001", "one", "A"),
            ("seg_002", "one", "A"),
            ("seg_003", "two", "B"),
            ("seg_004", "two", "B"),
        ]
        assert {one.type for one in answer.segments} == {"transcript.text.segment"}
        assert (answer.segments[2].start, answer.segments[2].end) == (2.4, 3.6)
        assert answer.usage == UsageDuration(type="duration", seconds=5)
        assert server.listener.asked == [AsrOptions(timestamps="word")]

    against(tmp_path, scene)


def test_known_voices_have_their_names(tmp_path: Path) -> None:
    async def scene(server: Server) -> None:
        anna = voice_of(recording(ONE))
        assert anna is not None
        server.voices.profiles = [SpeakerProfile("spk_1", "Anna", anna)]
        async with AsyncOpenAI(api_key="key", base_url=f"{server.url}/v1", max_retries=0) as client:
            answer: Any = await client.audio.transcriptions.create(
                model="gpt-4o-transcribe-diarize",
                file=("talk.wav", TALK),
                response_format="diarized_json",
                extra_body={
                    "known_speaker_names": ["customer", "agent"],
                    "known_speaker_references": [data_url(recording(THREE, THREE)), REFERENCE],
                },
            )
        assert [one.speaker for one in answer.segments] == ["Anna", "Anna", "agent", "agent"]

    against(tmp_path, scene)


def test_a_stream_ends_with_the_segments(tmp_path: Path) -> None:
    async def scene(server: Server) -> None:
        long = wav(recording(*TURNS, 0, 0, 0, 0, 0, 0, *TURNS, each_ms=600))
        async with AsyncOpenAI(api_key="key", base_url=f"{server.url}/v1", max_retries=0) as client:
            stream = await client.audio.transcriptions.create(
                model="gpt-4o-transcribe-diarize",
                file=("talk.wav", long),
                response_format="diarized_json",
                stream=True,
            )
            events = [event async for event in stream]
        deltas = [one.delta for one in events if isinstance(one, TranscriptionTextDeltaEvent)]
        segments = [one for one in events if isinstance(one, TranscriptionTextSegmentEvent)]
        assert isinstance(events[-1], TranscriptionTextDoneEvent)
        assert "".join(deltas) == events[-1].text
        assert [one.text for one in segments] == events[-1].text.split()
        names = {"one": "A", "two": "B"}
        assert [one.speaker for one in segments] == [names[one.text] for one in segments]
        assert [one.id for one in segments[:2]] == ["seg_001", "seg_002"]

    against(tmp_path, scene)


def test_verbose_json_names_the_speaker_of_segments_and_words(tmp_path: Path) -> None:
    async def scene(server: Server) -> None:
        fields = {"response_format": "verbose_json", "timestamp_granularities__": ["word"]}
        plain = await server.json(TALK, **fields)
        assert all("speaker" not in word for word in plain["words"])
        fields["timestamp_granularities__"] = ["word", "segment"]
        answer = await server.json(TALK, include__="earshot.speaker", **fields)
        for parts in (answer["words"], answer["segments"]):
            assert [part["speaker"] for part in parts] == ["A", "A", "B", "B"]

    against(tmp_path, scene)


def test_a_recogniser_without_times_of_words_gives_a_speaker_per_segment(tmp_path: Path) -> None:
    async def scene(server: Server) -> None:
        server.listener.able = ()
        server.listener.__post_init__()
        answer = await server.json(TALK, **DIARIZED)
        assert [one["speaker"] for one in answer["segments"]] == ["A", "A", "B", "B"]
        assert server.listener.asked == [AsrOptions(timestamps="segment")]

    against(tmp_path, scene)


def test_a_recording_of_silence_has_no_segment(tmp_path: Path) -> None:
    async def scene(server: Server) -> None:
        answer = await server.json(wav(recording(0, 0)), **DIARIZED)
        assert (answer["text"], answer["segments"]) == ("", [])

    against(tmp_path, scene)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        (DIARIZED, "response_format"),
        ({"response_format": "verbose_json", "include__": "earshot.speaker"}, "include[]"),
    ],
)
def test_a_server_without_a_model_says_which_one_to_get(
    fields: Mapping[str, str], param: str, tmp_path: Path
) -> None:
    async def scene(server: Server) -> None:
        server.voices.is_missing = True
        response = await server.post(file=TALK, **fields)
        error = await error_of(response)
        assert (response.status, error["code"]) == (400, "unsupported_parameter")
        assert error["param"] == param
        assert "earshot models pull ge2e" in error["message"]

    against(tmp_path, scene)


def known(*references: str, names: int | None = None) -> dict[str, Any]:
    """Returns the fields of voices that the client names."""
    count = len(references) if names is None else names
    return {
        **DIARIZED,
        "known_speaker_names__": [f"person {number}" for number in range(count)],
        "known_speaker_references__": list(references),
    }


NAMES, REFERENCES = "known_speaker_names[]", "known_speaker_references[]"


@pytest.mark.parametrize(
    ("fields", "code", "param", "message"),
    [
        (known(names=1), "invalid_value", NAMES, "each name needs a recording"),
        (known(REFERENCE, names=0), "invalid_value", REFERENCES, "each recording a name"),
        (known(*[REFERENCE] * 5), "invalid_value", NAMES, "at most 4"),
        (known(*[REFERENCE] * 5, names=4), "invalid_value", REFERENCES, "at most 4"),
        (
            {**known(REFERENCE, REFERENCE), "known_speaker_names__": ["Ann", " Ann "]},
            "invalid_value",
            NAMES,
            "a name comes twice",
        ),
        (
            {**known(REFERENCE), "known_speaker_names__": ["x" * 65]},
            "invalid_value",
            NAMES,
            "at most 64 characters",
        ),
        (known("https://example.com/a.wav"), "invalid_value", REFERENCES, "no data URL"),
        (known("data:audio/wav,abc"), "invalid_value", REFERENCES, "no data URL"),
        (known("data:audio/wav;base64,?"), "invalid_value", REFERENCES, "no data URL"),
        (
            known(REFERENCE, "data:audio/wav;base64,aGVsbG8="),
            "unsupported_audio",
            REFERENCES,
            "number 2: unsupported audio",
        ),
        (known(data_url(recording(TWO))), "invalid_value", REFERENCES, "it has 1.0 s; allowed: 2"),
        (known(data_url(recording(*[TWO] * 11))), "invalid_value", REFERENCES, "more than 10 s"),
        (known(data_url(recording(0, 0, 0))), "invalid_value", REFERENCES, "half a second of spee"),
        ({**DIARIZED, "prompt": "Names."}, "unsupported_parameter", "prompt", "diarized_json"),
        (
            {**DIARIZED, "include__": "logprobs"},
            "unsupported_parameter",
            "include[]",
            "diarized_json",
        ),
        (
            {**DIARIZED, "timestamp_granularities__": "segment"},
            "unsupported_parameter",
            "timestamp_granularities[]",
            "diarized_json",
        ),
        ({**DIARIZED, "task": "translate"}, "unsupported_parameter", "task", "diarized_json"),
        ({**DIARIZED, "prefix": "<|en|>"}, "unsupported_parameter", "prefix", "diarized_json"),
        ({"include__": "earshot.speaker"}, "invalid_value", "include[]", "verbose_json"),
    ],
)
def test_a_wrong_field_is_named(
    fields: Mapping[str, Any], code: str, param: str, message: str, tmp_path: Path
) -> None:
    async def scene(server: Server) -> None:
        response = await server.post(file=TALK, **fields)
        error = await error_of(response)
        assert (response.status, error["code"], error["param"]) == (400, code, param)
        assert error["type"] == "invalid_request_error"
        assert message in error["message"]
        assert len(error["message"]) < 500
        assert not server.listener.asked

    against(tmp_path, scene)


def test_a_voice_that_is_too_large_is_refused(tmp_path: Path) -> None:
    async def scene(server: Server) -> None:
        response = await server.post(file=TALK, **known("data:audio/wav;base64," + "A" * 1_600_000))
        error = await error_of(response)
        assert (response.status, error["code"], error["param"]) == (413, "too_large", REFERENCES)

    against(tmp_path, scene)


def test_translations_have_no_speakers(tmp_path: Path) -> None:
    async def scene(server: Server) -> None:
        response = await server.post(TRANSLATIONS, TALK, **DIARIZED)
        error = await error_of(response)
        assert (response.status, error["code"]) == (400, "invalid_value")
        assert error["param"] == "response_format"

    against(tmp_path, scene)


@pytest.mark.parametrize("stream", ["true", "false"])
def test_an_error_of_the_model_is_reported(stream: str, tmp_path: Path) -> None:
    async def scene(server: Server) -> None:
        server.voices.is_broken = True
        response = await server.post(file=TALK, stream=stream, **DIARIZED)
        text = await response.text()
        if response.status == 200:
            assert stream == "true"
            *_, text, end = text.removeprefix("data: ").removesuffix("\n\n").split("\n\ndata: ")
            assert end == "[DONE]"
        else:
            assert response.status == 502
        assert json.loads(text)["error"]["code"] == "engine_failed"

    against(tmp_path, scene)


def test_a_client_that_leaves_frees_everything(tmp_path: Path) -> None:
    async def scene(server: Server) -> None:
        server.voices.is_open.clear()
        request = asyncio.create_task(server.post(file=TALK, **DIARIZED))
        await until(lambda: server.voices.under_way == 1)
        request.cancel()
        await until(server.is_idle)

    against(tmp_path, scene)
