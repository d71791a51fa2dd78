"""Payloads of commands: as text, as JSON, and wrong ones."""

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import PayloadTooLarge, RequestError
from devices.fleet.presence import DeviceNotification
from devices.mqtt.commands import (
    MAX_PAYLOAD_BYTES,
    Announce,
    SetVolume,
    StartConversation,
    Stop,
    decode_command,
)
from devices.mqtt.topics import COMMAND_NAMES, CommandName, CommandTopic

TEXT = DeviceNotification(text="dinner")


@pytest.mark.parametrize(
    ("name", "device_id", "payload", "command"),
    [
        ("announce", "dev_1", b"dinner", Announce(TEXT, "dev_1")),
        ("announce", "dev_1", b'{"text": "dinner"}', Announce(TEXT, "dev_1")),
        ("announce", "", b"dinner", Announce(TEXT)),
        ("announce", "", b'{"text": "dinner", "area": " Kitchen "}', Announce(TEXT, "", "Kitchen")),
        (
            "announce",
            "dev_1",
            b'{"text": "dinner", "audio_url": "http://a/b.wav"}',
            Announce(DeviceNotification(text="dinner", audio_url="http://a/b.wav"), "dev_1"),
        ),
        (
            "announce",
            "dev_1",
            "è pronto".encode(),
            Announce(DeviceNotification(text="è pronto"), "dev_1"),
        ),
        (
            "announce",
            "dev_1",
            b'{"text": "dinner", "voice": "anna", "language": "de"}',
            Announce(DeviceNotification(text="dinner", voice="anna", language="de"), "dev_1"),
        ),
        (
            "start_conversation",
            "dev_1",
            b"dinner",
            StartConversation(replace(TEXT, starts_conversation=True), "dev_1"),
        ),
        (
            "start_conversation",
            "dev_1",
            b'{"text": "dinner", "language": "de"}',
            StartConversation(replace(TEXT, language="de", starts_conversation=True), "dev_1"),
        ),
        ("stop", "dev_1", b"PRESS", Stop("dev_1")),
        ("stop", "dev_1", b"", Stop("dev_1")),
        ("volume", "dev_1", b"60", SetVolume("dev_1", 60)),
        ("volume", "dev_1", b" 60.0 ", SetVolume("dev_1", 60)),
    ],
)
def test_a_payload_becomes_a_command(
    name: CommandName, device_id: str, payload: bytes, command: object
) -> None:
    assert decode_command(CommandTopic(name, device_id), payload) == command


@pytest.mark.parametrize(
    ("name", "payload", "message"),
    [
        ("announce", b"", "text: Expected `str` of length >= 1"),
        ("announce", b"x" * 1001, "text: Expected `str` of length <= 1000"),
        ("announce", b"\xff\xfe", "the text must be UTF-8"),
        ("announce", b'{"text": 5}', "text: Expected `str`, got `int`"),
        ("announce", b'{"text": "a", "tekst": "b"}', "there are text, voice, language, audio_url"),
        ("announce", b'{"text": "a", "area": "kitchen"}', "there are text, voice, language"),
        ("announce", b'{"text": "a", "language": "german"}', "language:"),
        ("start_conversation", b"", "text: Expected `str` of length >= 1"),
        (
            "start_conversation",
            b'{"text": "a", "audio_url": ""}',
            "there are text, voice, language",
        ),
        ("announce", b'{"text": "a"', "The body is not JSON"),
        ("announce", b'{"text": "a", "audio_url": "file:///etc/passwd"}', "audio_url:"),
        ("volume", b"loud", "a volume is a whole number from 0 to 100"),
        ("volume", b"101", "a volume is a whole number from 0 to 100"),
        ("volume", b"-1", "a volume is a whole number from 0 to 100"),
        ("volume", b"", "a volume is a whole number from 0 to 100"),
    ],
)
def test_a_wrong_payload_is_named(name: CommandName, payload: bytes, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        decode_command(CommandTopic(name, "dev_1"), payload)
    assert message in str(caught.value)


@given(
    name=st.sampled_from(COMMAND_NAMES), payload=st.binary(max_size=64) | st.text().map(str.encode)
)
def test_any_payload_is_a_command_or_a_named_error(name: CommandName, payload: bytes) -> None:
    for device_id in ("dev_1", ""):
        with suppress(RequestError):  # any other error fails the test
            decode_command(CommandTopic(name, device_id), payload)


def test_a_payload_has_a_limit() -> None:
    with pytest.raises(PayloadTooLarge, match=f"the limit is {MAX_PAYLOAD_BYTES}"):
        decode_command(CommandTopic("stop", "dev_1"), b"x" * (MAX_PAYLOAD_BYTES + 1))
