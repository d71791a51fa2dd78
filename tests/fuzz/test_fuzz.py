"""Whatever comes from outside is used or refused, in bounded time: a thousand inputs, a million."""

import logging

import pytest

from tests.fuzz import files, forms, realtime, speech, streams, willow, wyoming, xiaozhi
from tests.fuzz.inputs import Fuzz, fuzz

pytestmark = pytest.mark.filterwarnings("ignore::aiohttp.multipart.BadContentDispositionHeader")

TARGETS = (
    Fuzz("decoding", realtime.decoding, few=500, many=400_000),
    Fuzz("conversing", realtime.conversing, few=30, many=10_000),
    Fuzz("framing", files.framing, few=300, many=150_000),
    Fuzz("describing", files.describing, few=100, many=70_000),
    Fuzz("answering", files.answering, few=10, many=5_000),
    Fuzz("sound_files", files.sound_files, few=100, many=50_000),
    Fuzz("packets", files.packets, few=50, many=50_000),
    Fuzz("settings", files.settings, few=50, many=30_000),
    Fuzz("fields", forms.fields, few=200, many=40_000),
    Fuzz("forms", forms.forms, few=50, many=10_000),
    Fuzz("speech_bodies", speech.bodies, few=300, many=50_000),
    Fuzz("questions", speech.queries, few=300, many=50_000),
    Fuzz("buffering", streams.buffering, few=200, many=75_000),
    Fuzz("endpointing", streams.endpointing, few=100, many=60_000),
    Fuzz("chunking", streams.chunking, few=100, many=100_000),
    Fuzz("willow_messages", willow.decoding, few=10_000, many=1_000_000),
    Fuzz("willow_answers", willow.encoding, few=100, many=30_000),
    Fuzz("willow_wakes", willow.waking, few=1_000, many=100_000),
    Fuzz("wyoming_events", wyoming.reading, few=9_500, many=900_000),
    Fuzz("wyoming_talks", wyoming.talking, few=500, many=100_000),
    Fuzz("xiaozhi_decoding", xiaozhi.decoding, few=8_500, many=850_000),
    Fuzz("xiaozhi_turns", xiaozhi.conversing, few=1_000, many=100_000),
    Fuzz("xiaozhi_tools", xiaozhi.tools, few=500, many=50_000),
    Fuzz("xiaozhi_sound", xiaozhi.hearing, few=20, many=20_000),
)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """A million warnings about bad input would be kept until the end."""
    caplog.set_level(logging.CRITICAL)


@pytest.mark.parametrize("one", TARGETS, ids=lambda one: one.name)
def test_some_random_inputs(one: Fuzz) -> None:
    fuzz(one.name, one.target, one.few)


@pytest.mark.soak
@pytest.mark.parametrize("one", TARGETS, ids=lambda one: one.name)
def test_a_million_random_inputs(one: Fuzz) -> None:
    fuzz(one.name, one.target, one.many)


def test_they_are_a_million() -> None:
    assert sum(one.many for one in TARGETS) >= 1_000_000
