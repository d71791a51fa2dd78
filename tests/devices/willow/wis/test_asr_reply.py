"""Any answer fits into one read of a device."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import EarshotError, EngineError, RequestError
from devices.willow.wis.asr import WisTranscript
from devices.willow.wis.asr_reply import MAX_REPLY_BYTES, device_reply, file_reply, short_errors
from server.http.edge import error_response

WORDS = st.text(max_size=4000)


@given(WORDS, st.none() | WORDS, st.booleans(), st.integers(0, 10**9))
def test_a_reply_is_json_below_2_kb(
    text: str, translation: str | None, stats: bool, audio_ms: int
) -> None:
    heard = WisTranscript(text, "en", audio_ms, audio_ms / 7, translation)
    data = device_reply(heard, stats=stats)
    assert len(data) <= MAX_REPLY_BYTES < 2048
    reply = msgspec.json.decode(data)
    assert ("infer_time" in reply) == stats
    for name, whole in (("text", text), ("translation", translation)):
        if whole is None:
            assert name not in reply
        elif reply[name] != whole:
            assert len(msgspec.json.encode([text, translation])) > 1800
            assert whole.startswith(reply[name].removesuffix("…"))
            assert reply[name] == "" or reply[name].endswith("…")


def test_a_long_text_ends_at_a_word() -> None:
    reply = msgspec.json.decode(
        device_reply(WisTranscript("wörter " * 999, "de", 1, 1), stats=False)
    )
    assert reply["text"].endswith("wörter…")
    assert len(reply["text"].encode()) > 1900


def test_a_short_text_is_unchanged() -> None:
    data = device_reply(WisTranscript("turn on the light", "en", 1940, 97.0004), stats=True)
    assert msgspec.json.decode(data) == {
        "language": "en",
        "text": "turn on the light",
        "infer_time": 97.0,
        "infer_speedup": 19,
        "audio_duration": 1940,
    }


def test_the_transcript_of_a_file_has_no_limit() -> None:
    assert len(file_reply(WisTranscript("word " * 9999, "en", 0, 0))) > 40_000


@pytest.mark.parametrize("char", ["x", "ä", "語", "🎤", '"', "\0"])
def test_errors_fit_into_one_read(char: str) -> None:
    for error in (RequestError(char * 5000, param="model"), EngineError("asr", "x", char * 5000)):
        with pytest.raises(EarshotError) as caught, short_errors():
            raise error
        body = error_response(caught.value).body
        assert isinstance(body, bytes)
        assert len(body) < 2048
