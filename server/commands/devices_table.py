"""Formats devices and their logs as text."""

from collections.abc import Mapping, Sequence
from typing import Any

from devices.api.views import DeviceView
from server.commands.columns import align_columns

HEADINGS = ("NAME", "KIND", "AREA", "STATE", "LAST SEEN", "ID")


def table(devices: Sequence[DeviceView]) -> str:
    """Formats devices as a table with one line each."""
    if not devices:
        return "no device has connected yet"
    return "\n".join(align_columns([HEADINGS, *map(_row, devices)]))


def entry_line(entry: Mapping[str, Any]) -> str:
    """Formats one entry of a device's log: time, event, and the error code or the times of the
    turn in ms."""
    timing = entry.get("timing") or {}
    marks = sorted(timing.items(), key=lambda mark: mark[1])
    details = entry.get("code") or ", ".join(f"{name} {ms:.0f} ms" for name, ms in marks)
    return f"{entry['at']}  {entry['what']:<12}  {details}".rstrip()


def _row(device: DeviceView) -> tuple[str, ...]:
    last_seen = f"{device.last_seen:%Y-%m-%d %H:%M} UTC" if device.last_seen else "-"
    area = device.area or "-"
    return device.name, device.kind, area, _state(device), last_seen, device.id


def _state(device: DeviceView) -> str:
    match device.standing:
        case "new":
            return "waits for approval" + (f" ({device.pairing_code})" * bool(device.pairing_code))
        case "blocked":
            return "blocked"
        case _:
            waiting = f", notices waiting: {device.waiting}" if device.waiting else ""
            claim = f", new identity waits ({device.pairing_code})" * device.has_new_identity
            return f"{device.doing or 'away'}{waiting}{claim}"
