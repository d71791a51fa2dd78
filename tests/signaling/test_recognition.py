"""How speech is to be recognised, as clients ask for it: what is refused, and what it is called."""

from typing import Any

import pytest

from core.errors import RequestError
from tests.signaling.test_session_object import after, decoding, heard


@pytest.mark.parametrize(
    ("sent", "code", "param"),
    [
        (decoding(beam_size=0), "invalid_value", "beam_size"),
        (decoding(beam_size=11), "invalid_value", "beam_size"),
        (decoding(beam_size="5"), "invalid_type", "beam_size"),
        (decoding(temperature=1.5), "invalid_value", "temperature"),
        (decoding(no_speech_threshold=-1), "invalid_value", "no_speech_threshold"),
        (decoding(task="sing"), "invalid_value", "task"),
        (decoding(padding="none"), "invalid_value", "padding"),
        (decoding(prefix="x" * 5000), "invalid_value", "prefix"),
        (decoding(beam=5), "unknown_parameter", "beam"),
    ],
)
def test_decoding_is_checked(sent: dict[str, Any], code: str, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        after(sent)
    wanted = f"session.earshot.transcription.{param}"
    assert (caught.value.code, caught.value.param) == (code, wanted)


@pytest.mark.parametrize("sent", [{"languages": [""]}, {"keywords": [""]}, {"languages": "de"}])
def test_languages_and_keywords_are_checked(sent: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as caught:
        after(heard(transcription=sent))
    assert caught.value.param is not None
    assert caught.value.param.startswith("session.audio.input.transcription.")
