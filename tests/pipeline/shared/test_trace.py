"""A trace contains sound and settings of a session only as far as it is configured."""

import json
from base64 import b64decode
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from core.audio import ASR_RATE_HZ, AudioFrame
from core.conversation.events import ServerToolItem, SpeechStarted, TranscriptionCompleted
from core.conversation.items import FunctionCallItem, FunctionOutputItem
from core.ports import DeviceLocation
from pipeline.shared import trace
from pipeline.shared.mcp_servers import ClientMcpServer
from pipeline.shared.settings import SessionSettings
from pipeline.shared.trace import SessionTrace
from tests.pipeline.fakes import Kept

SETTINGS = SessionSettings(instructions="be brief", keywords=("Ada",), language="en")


class Still:
    def now(self) -> float:
        return 7.0

    def wall(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)


def traced(*, words: bool = False, sound: bool = False) -> tuple[SessionTrace, Kept]:
    kept = Kept()
    return SessionTrace(kept, "sess_1", Still(), words=words, sound=sound), kept


def feed(into: SessionTrace, samples: int) -> None:
    for start in range(0, samples, 320):
        pcm = np.arange(start, min(start + 320, samples), dtype=np.int16)
        into.frame(AudioFrame(pcm, ASR_RATE_HZ, start))


def test_a_trace_contains_all_sound_at_its_place_among_the_events() -> None:
    one, kept = traced(sound=True)
    feed(one, 16_000 + 640)
    one.write(SpeechStarted("item", 3))
    feed(one, 320)
    one.close()
    assert kept.names() == ["InputAudio", "InputAudio", "SpeechStarted", "InputAudio"]
    chunks = [record for record in kept.records if record["event"] == "InputAudio"]
    assert [chunk["start"] for chunk in chunks] == [0, 16_000, 16_640]
    pcm = np.concatenate([np.frombuffer(b64decode(chunk["pcm"]), "<i2") for chunk in chunks])
    assert np.array_equal(pcm[:16_640], np.arange(16_640))
    assert np.array_equal(pcm[16_640:], np.arange(320))


def test_a_trace_contains_no_sound_and_no_words_by_default() -> None:
    one, kept = traced()
    one.settings(SETTINGS)
    feed(one, 32_000)
    one.write(TranscriptionCompleted("item", "a secret", 1.0, "en"))
    one.close()
    assert kept.names() == ["Configured", "Transcribed"]
    assert kept.records[0]["settings"]["language"] == "en"
    told = json.dumps(kept.records)
    assert not any(word in told for word in ("secret", "brief", "Ada"))


def test_tool_calls_and_results_are_traced_only_with_words() -> None:
    call, answer = FunctionCallItem("i", "c", "add", "{}"), FunctionOutputItem("o", "c", "[4]")
    for words, names in ((True, ["ToolCalled", "ToolAnswered"]), (False, [])):
        one, kept = traced(words=words, sound=True)
        one.write(ServerToolItem("resp_1", call))
        one.write(ServerToolItem("resp_1", answer))
        assert kept.names() == names
        told = [(r["call_id"], r.get("arguments"), r.get("output")) for r in kept.records]
        assert told == ([("c", "{}", None), ("c", None, "[4]")] if words else [])


def test_a_trace_names_the_pacing_and_with_sound_also_the_place() -> None:
    for sound in (True, False):
        one, kept = traced(sound=sound)
        one.settings(SETTINGS, "client", DeviceLocation("Attic", "dev_1"))
        assert kept.records[0]["paced_by"] == "client"
        place = (
            {"area": "Attic", "device_id": "dev_1", "caller": "", "caller_id": ""}
            if sound
            else None
        )
        assert kept.records[0].get("place") == place


@pytest.mark.parametrize("asked_for", [{}, {"words": True}, {"words": True, "sound": True}])
def test_a_trace_never_contains_keys_of_the_clients_servers(asked_for: dict[str, bool]) -> None:
    headers = {"Authorization": "a secret"}
    server = ClientMcpServer("x", "https://x.test/secret", headers)
    one, kept = traced(**asked_for)
    one.settings(replace(SETTINGS, mcp_servers=(server,)))
    assert "secret" not in json.dumps(kept.records)


@pytest.mark.parametrize("asked_for", [{"words": True}, {"sound": True}])
def test_settings_are_traced_whole_with_words_or_sound(asked_for: dict[str, bool]) -> None:
    one, kept = traced(**asked_for)
    one.settings(SETTINGS)
    assert kept.records[0]["settings"]["instructions"] == "be brief"
    assert kept.records[0]["began_at"] == "2026-01-01T00:00:00+00:00"


def test_traced_sound_is_limited_and_its_omission_is_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trace, "MAX_SOUND_MS", 100)
    one, kept = traced(sound=True)
    feed(one, 16_000)
    one.close()
    assert kept.names() == ["InputAudio", "InputAudioOmitted"]
    assert kept.records[1]["start"] == 1600
