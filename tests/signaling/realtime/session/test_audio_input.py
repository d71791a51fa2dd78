"""Recognition options of clients: which are refused, the names in their errors, and the padding
used in place of one that the model does not support."""

import json
from typing import Any

import pytest

from core.errors import RequestError
from signaling.realtime.connection import RealtimeConnection
from tests.signaling.realtime.client_events import after, decoding, heard, realtime
from tests.signaling.realtime.fakes import BEGUN, Client, NotedSession, play


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
def test_decoding_options_are_checked(sent: dict[str, Any], code: str, param: str) -> None:
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


def updated_with(client: Client, *sessions: dict[str, Any]) -> list[tuple[str, str | None]]:
    """Returns the events after each update: for a session its padding, for a warning its code."""

    async def scene(connection: RealtimeConnection) -> None:
        for session in sessions:
            await connection.receive(json.dumps({"type": "session.update", "session": session}))
        connection.close()

    play(client, scene)
    return [(one["type"], told_of(one)) for one in client.sent[len(BEGUN) :]]


def told_of(event: dict[str, Any]) -> str | None:
    if event["type"] == "earshot.warning":
        assert event["param"] == "session.earshot.transcription.padding"
        assert event["message"] == (
            "The model 'default' was not trained for the padding 'nopad': 'longest' is used."
        )
        return str(event["code"])
    decoding_shown: dict[str, str] = event["session"]["earshot"].get("transcription", {})
    return decoding_shown.get("padding")


WARNED = ("earshot.warning", "padding_replaced")


def test_an_unsupported_padding_is_shown_as_its_replacement_with_a_warning() -> None:
    client = Client(NotedSession(knows_nopad=False))
    told = updated_with(
        client,
        decoding(padding="nopad"),
        realtime(earshot={"barge_in": "off"}),
        decoding(padding="bucket"),
        decoding(padding="nopad"),
    )
    assert told == [
        ("session.updated", "longest"),
        WARNED,
        ("session.updated", "longest"),  # no second warning
        ("session.updated", "bucket"),
        ("session.updated", "longest"),
        WARNED,
    ]
    asked = [settings.padding for _, settings in client.session.asked]
    assert asked == ["nopad", "nopad", "bucket", "nopad"], "another model may know it"


def test_a_supported_padding_is_shown_unchanged() -> None:
    told = updated_with(Client(), decoding(padding="nopad"))
    assert told == [("session.updated", "nopad")]


def test_a_new_session_shows_the_replacement_of_its_padding() -> None:
    client = Client(NotedSession(fallback_padding="longest"))

    async def leave(connection: RealtimeConnection) -> None:
        connection.close()

    play(client, leave, terms=after(decoding(padding="nopad")))
    assert client.types == [*BEGUN, "earshot.warning"]
    created, _, warning = client.sent
    assert (told_of(created), told_of(warning)) == ("longest", "padding_replaced")
