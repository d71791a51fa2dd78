"""OpenAI's Python client against `earshot serve` with a real recogniser."""

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from openai import OpenAI
from openai.types.audio import TranscriptionVerbose

from core.audio import ASR_RATE_HZ, AudioFrame, silence
from media.files.decode import write_wav
from tests.server.process import serving
from tests.shared import shared_data
from tests.speech import say

pytestmark = pytest.mark.live

WORDS = "turn on the kitchen light"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    with (
        serving(tmp_path_factory.mktemp("server")) as server,
        OpenAI(api_key="key", base_url=f"{server.url}/v1", max_retries=0) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("clips") / "clip.wav"
    pcm = say(WORDS, lead_ms=200, tail_ms=500)
    write_wav(path, [AudioFrame(pcm, ASR_RATE_HZ, 0)])
    return path


def words(text: str) -> str:
    return "".join(c for c in text.lower() if c.isalpha() or c == " ").strip()


def test_every_output_format_has_the_transcript(client: OpenAI, clip: Path) -> None:
    plain = client.audio.transcriptions.create(model="whisper-1", file=clip, language="en")
    assert words(plain.text) == WORDS
    text = client.audio.transcriptions.create(model="default", file=clip, response_format="text")
    assert text == f"{plain.text}\n"
    srt = client.audio.transcriptions.create(model="default", file=clip, response_format="srt")
    assert srt.startswith("1\n00:00:0")
    assert plain.text in srt
    vtt = client.audio.transcriptions.create(model="default", file=clip, response_format="vtt")
    assert vtt.startswith("WEBVTT\n\n00:00:0")


def test_words_have_times_within_the_clip(client: OpenAI, clip: Path) -> None:
    verbose = client.audio.transcriptions.create(
        model="default",
        file=clip,
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
    )
    assert isinstance(verbose, TranscriptionVerbose)
    assert verbose.language == "english"
    assert [words(one.word) for one in verbose.words or ()] == WORDS.split()
    times = [time for one in verbose.words or () for time in (one.start, one.end)]
    assert times == sorted(times)
    assert times[0] >= 0
    assert times[-1] <= verbose.duration
    assert verbose.segments
    assert all(one.avg_logprob < 0 and one.tokens for one in verbose.segments)


def test_a_stream_has_the_same_transcript(client: OpenAI, clip: Path) -> None:
    plain = client.audio.transcriptions.create(model="default", file=clip)
    events = list(client.audio.transcriptions.create(model="default", file=clip, stream=True))
    deltas = [one.delta for one in events if one.type == "transcript.text.delta"]
    (done,) = [one for one in events if one.type == "transcript.text.done"]
    assert "".join(deltas) == done.text == plain.text


def test_ten_minutes_of_silence_have_no_transcript(client: OpenAI, tmp_path: Path) -> None:
    path = tmp_path / "silence.wav"
    second = AudioFrame(silence(1000, ASR_RATE_HZ), ASR_RATE_HZ, 0)
    write_wav(path, [second] * 600)
    heard = client.audio.transcriptions.create(model="default", file=path)
    assert heard.text == ""
    assert heard.usage is not None
    assert heard.usage.type == "duration"
    assert heard.usage.seconds == 600


def test_every_container_is_decoded(client: OpenAI) -> None:
    for path in sorted(shared_data("codecs").iterdir()):
        if path.name.startswith("malformed"):
            with pytest.raises(openai.BadRequestError) as error:
                client.audio.transcriptions.create(model="default", file=path)
            assert error.value.code == "unsupported_audio"
        else:
            client.audio.transcriptions.create(model="default", file=path)


def test_errors_have_classes_and_models_are_listed(client: OpenAI, clip: Path) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.audio.transcriptions.create(model="parrot", file=clip)
    assert missing.value.code == "model_not_found"
    names = [model.id for model in client.models.list()]
    for name in (*names, "default", "whisper-1"):
        assert client.models.retrieve(name).id == name


@pytest.mark.parametrize("kind", ["mp3", "opus", "aac", "flac", "wav"])
def test_synthesised_speech_is_recognised(client: OpenAI, kind: str) -> None:
    spoken = client.audio.speech.create(
        model="tts-1",
        voice="alloy",
        input=f"**{WORDS.capitalize()}**.",
        response_format=kind,  # type: ignore[arg-type]
    )
    heard = client.audio.transcriptions.create(
        model="default", file=(f"said.{kind}", spoken.content), language="en"
    )
    assert words(heard.text).startswith("turn on the kitchen")  # a tiny model: `light` or `lamp`
