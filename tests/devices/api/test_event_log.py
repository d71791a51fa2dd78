"""The event log of devices, as their connections write it."""

import pytest

from devices.api import event_log as journal_file
from devices.api.event_log import DeviceEventLog, DeviceLogEntry
from devices.fleet.presence import Presence
from tests.devices.api.fakes import FakeLive
from tests.devices.registry.harness import Moment

AT = "2026-03-01T12:00:00.000+00:00"


def test_connections_turns_and_errors_are_logged() -> None:
    journal = DeviceEventLog(Moment())
    presence, live = Presence(journal), FakeLive(timing={"playout_start": 640.0})
    with presence.connected("dev_1", live):
        presence.note_turn("dev_1")
        presence.note_error("dev_1", "engine_failed")
    presence.note_turn("dev_1")
    assert journal.entries_of("dev_1") == (
        DeviceLogEntry(AT, "connected"),
        DeviceLogEntry(AT, "turn", timing={"playout_start": 640.0}),
        DeviceLogEntry(AT, "error", code="engine_failed"),
        DeviceLogEntry(AT, "disconnected"),
        DeviceLogEntry(AT, "turn"),
    )
    assert journal.entries_of("dev_2") == ()


def test_a_replaced_connection_does_not_end_the_newer_one() -> None:
    journal = DeviceEventLog(Moment())
    presence, older, newer = Presence(journal), FakeLive(), FakeLive()
    with presence.connected("dev_1", older):
        with presence.connected("dev_1", newer) as former:
            assert former is older
        assert presence.find("dev_1") is None
    assert [entry.what for entry in journal.entries_of("dev_1")] == [
        "connected",
        "connected",
        "disconnected",
    ]


def test_the_length_of_the_log_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_file, "MAX_PER_DEVICE", 2)
    monkeypatch.setattr(journal_file, "MAX_DEVICES", 2)
    journal = DeviceEventLog(Moment())
    for code in ("a", "b", "c"):
        journal("dev_1", "error", code=code)
    assert [entry.code for entry in journal.entries_of("dev_1")] == ["b", "c"]
    journal("dev_2", "error")
    journal("dev_1", "error")
    journal("dev_3", "error")
    assert journal.entries_of("dev_2") == ()
    assert len(journal.entries_of("dev_1")) == 2
    journal.forget("dev_1")
    assert journal.entries_of("dev_1") == ()
