"""Reading a trace and comparing turns; no session runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from core.errors import RequestError
from core.ports import UNKNOWN_LOCATION
from pipeline.shared.settings import SessionSettings
from server.commands.replay.diff import SessionDiff, as_json, as_text, pairs
from server.commands.replay.run import replay_obstacle, select_sessions
from server.commands.replay.trace_reader import (
    RecordedAction,
    RecordedSession,
    RecordedTruncation,
    RecordedTurn,
    parse_session,
    read,
)


def turn(
    transcript: str, answer: str = "yes", asr_ms: float = 10, status: str = "answered"
) -> RecordedTurn:
    return RecordedTurn(status, transcript, answer, {"asr": asr_ms}, 200 + asr_ms)


def record(event: str, **fields: Any) -> dict[str, Any]:
    return {"t_ms": 0.0, "session": "s", "event": event, **fields}


def configured(settings: SessionSettings) -> dict[str, Any]:
    return record("Configured", settings=msgspec.to_builtins(settings))


def sound(samples: int) -> dict[str, Any]:
    from base64 import b64encode

    return record("InputAudio", start=0, pcm=b64encode(np.ones(samples, "<i2").tobytes()).decode())


def test_turns_are_assembled_from_events_in_any_order() -> None:
    found = parse_session(
        "s",
        [
            configured(SessionSettings(language="en")),
            sound(320),
            record("Transcribed", item_id="i", transcript=" on "),
            record(
                "TurnTraced",
                item_id="i",
                response_id="r",
                status="answered",
                stages=[{"stage": "asr", "start_ms": 5.0, "end_ms": 12.0}],
                response_latency_ms=20.0,
                marks={"candidate": 60.0},
            ),
            record("OutputItemDone", response_id="r", item={"parts": [{"transcript": "It is."}]}),
        ],
    )
    assert found.settings == SessionSettings(language="en")
    assert len(found.pcm) == 320
    assert list(found.turns) == [
        RecordedTurn("answered", "on", "It is.", {"asr": 7.0}, 20.0, {"candidate": 60.0})
    ]
    assert replay_obstacle(found) == ""


def test_audio_after_a_wake_word_is_replayed_without_one() -> None:
    """The wake word itself is silence in a trace."""
    asked = SessionSettings(wake_word="okay_nabu", language="en")
    found = parse_session("s", [configured(asked), sound(320), configured(asked)])
    assert found.settings == SessionSettings(language="en")
    assert found.actions == [RecordedAction(320, SessionSettings(language="en"))]


def test_an_answer_recorded_after_the_next_turn_keeps_its_place() -> None:
    def told(item_id: str | None, response_id: str | None) -> dict[str, Any]:
        how: dict[str, Any] = {"status": "answered", "stages": [], "response_latency_ms": None}
        return record("TurnTraced", item_id=item_id, response_id=response_id, **how)

    found = parse_session(
        "s",
        [
            record("InputCommitted", item_id="a"),
            record("Transcribed", item_id="a", transcript="long story"),
            record("ResponseCreated", response_id="written"),
            record("InputCommitted", item_id="b"),
            record("Transcribed", item_id="b", transcript="uh-huh"),
            told("b", None),
            told(None, "written"),
            told("a", "r"),
        ],
    )
    assert [turn.transcript for turn in found.turns] == ["long story", "", "uh-huh"]


def test_commits_of_a_client_are_replayed_at_their_positions() -> None:
    manual = SessionSettings(turn_detection=None)
    later = SessionSettings(language="de")
    found = parse_session(
        "s",
        [
            configured(manual),
            sound(640),
            record("InputCommitted"),
            record("ResponseCreated"),
            sound(320),
            configured(later),
            record("InputCommitted"),
            record("ResponseCreated"),
        ],
    )
    assert found.actions == [
        RecordedAction(640, "commit"),
        RecordedAction(640, "respond"),
        RecordedAction(960, later),
    ]


def test_older_traces_without_a_pace_are_read_as_calls() -> None:
    found = parse_session("s", [configured(SessionSettings()), sound(320)])
    assert (found.paced_by, found.place, found.tool_calls) == ("server", UNKNOWN_LOCATION, [])


def test_only_a_client_that_paces_playout_has_playout_positions() -> None:
    told = record("ItemTruncated", item_id="i", audio_end_ms=700)
    for paced_by, steps in (
        ("client", [RecordedAction(320, RecordedTruncation(700))]),
        ("server", []),
    ):
        begun = {**configured(SessionSettings()), "paced_by": paced_by}
        assert parse_session("s", [begun, sound(320), told, sound(320)]).actions == steps


def test_an_out_of_band_response_is_not_cancelled_in_a_replay() -> None:
    def cancelled(**terms: bool) -> dict[str, Any]:
        return record("ResponseDone", reason="client_cancelled", terms=terms)

    begun = configured(SessionSettings())
    told = [begun, cancelled(in_conversation=False), sound(320), cancelled(), sound(320)]
    assert parse_session("s", told).actions == [RecordedAction(320, "cancel")]


def test_a_trace_without_audio_is_not_replayed() -> None:
    found = parse_session("s", [configured(SessionSettings())])
    assert "trace.audio" in replay_obstacle(found)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"{", ":2: not JSON"),
        (b'{"a": 1}', ":2: not a record"),
        (b'{"session": "s", "event": "InputAudio", "pcm": "!"}', "invalid audio"),
        (
            b'{"session": "s", "event": "Configured", "settings": {"speed": "x"}}',
            "invalid settings",
        ),
        (
            b'{"session": "s", "event": "Configured", "settings": {}, "paced_by": "x"}',
            "paced by 'x', not by server or client",
        ),
        (
            b'{"session": "s", "event": "Configured", "settings": {}, "place": {"area": 1}}',
            "an invalid place",
        ),
    ],
)
def test_a_broken_trace_is_named(line: bytes, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_bytes(msgspec.json.encode(record("X")) + b"\n" + line + b"\n")
    with pytest.raises(RequestError, match=complaint):
        read(file)


def test_turns_are_paired_by_their_transcripts() -> None:
    old = [turn("one"), turn("two"), turn("three")]
    new = [turn("one"), turn("too"), turn("extra"), turn("three", "no")]
    found = pairs(old, new)
    assert [(p.old and p.old.transcript, p.new and p.new.transcript) for p in found] == [
        ("one", "one"),
        ("two", "too"),
        (None, "extra"),
        ("three", "three"),
    ]
    assert [pair.is_same for pair in found] == [True, False, False, False]


def session(*turns: RecordedTurn) -> RecordedSession:
    return RecordedSession(
        "s", SessionSettings(), np.ones(16_000, np.int16), (), turns, True, False
    )


def test_a_difference_is_reported_with_its_times() -> None:
    before = session(turn("one"), turn("two", asr_ms=30))
    now = [turn("one", asr_ms=12), turn("too", asr_ms=20)]
    text = as_text([SessionDiff(before, pairs(before.turns, now))])
    assert "    1 = one -> yes (210 -> 212 ms)\n" in text
    assert "    2 - two -> yes (230 ms)\n    2 + too -> yes (220 ms)\n" in text
    assert "| asr | 20 | 16 | -4 |" in text
    assert "1 of 2 turns have the same words." in text


def test_a_turn_without_playout_has_no_latency() -> None:
    silent = replace(turn("one"), latency_ms=None)
    for old, new, took in (
        (turn("one"), silent, " (210 -> none ms)"),
        (silent, turn("one"), " (none -> 210 ms)"),
        (silent, silent, ""),
    ):
        text = as_text([SessionDiff(session(old), pairs([old], [new]))])
        assert f"    1 = one -> yes{took}\n" in text


def test_a_missing_turn_is_a_difference() -> None:
    before = session(turn("one"), turn("two", status="cancelled"))
    found = SessionDiff(before, pairs(before.turns, [turn("one")]))
    assert not found.is_same
    assert "2 - two -> yes [cancelled]" in as_text([found])
    written = msgspec.json.decode(msgspec.json.encode(as_json([found])))
    assert written["sessions"][0]["turns"][1]["new"] is None


def test_sessions_are_chosen_by_name() -> None:
    one, other = session(), replace(session(), id="t")
    assert select_sessions([one, other], []) == [one, other]
    assert [found.id for found in select_sessions([one, other], ["t"])] == ["t"]
    with pytest.raises(RequestError, match="no session 'x' in the trace; there are: s, t"):
        select_sessions([one, other], ["x"])
