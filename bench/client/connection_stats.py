"""Quality of the connection, from measurements at the client and reports of an Earshot server."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.connection_stats import AudioFlowStats, ConnectionStats

QUALITY_EVENT = "earshot.connection"


@dataclass(frozen=True, slots=True)
class ConnectionReport:
    """Quality since the connect; jitter and round trip are the latest values. None: not known.

    "up" is from the client to the server.
    """

    transport: str
    codec: str | None
    protocol: str | None
    local_candidate: str | None
    remote_candidate: str | None
    round_trip_ms: float | None
    loss_up: float | None
    loss_down: float | None
    "Share of lost packets, 0 to 1."
    jitter_up_ms: float | None
    jitter_down_ms: float | None
    buffer_up_ms: float | None
    "Mean time that the server's jitter buffer held packets; down: the client's."
    buffer_down_ms: float | None


def quality_of(own: ConnectionStats, told: Mapping[str, Any]) -> ConnectionReport:
    """Combines both sides. told: the server's latest `earshot.connection`; empty when there was
    none."""
    up, down = own.sent or AudioFlowStats(), own.received or AudioFlowStats()
    theirs = told.get("up") or {}  # the same values, but including packets that came too late
    return ConnectionReport(
        transport=own.transport,
        codec=own.codec,
        protocol=own.protocol,
        local_candidate=own.local_candidate,
        remote_candidate=own.remote_candidate,
        round_trip_ms=_rounded(_first(own.round_trip_ms, told.get("round_trip_ms"))),
        loss_up=_first(_share(theirs.get("lost"), theirs.get("packets")), _loss(up)),
        loss_down=_loss(down),
        jitter_up_ms=_rounded(_first(theirs.get("jitter_ms"), up.jitter_ms)),
        jitter_down_ms=_rounded(down.jitter_ms),
        buffer_up_ms=_rounded(theirs.get("buffer_ms")),
        buffer_down_ms=_rounded(down.buffer_ms),
    )


def quality_line(quality: ConnectionReport) -> str:
    """Returns one line for people, without unknown values other than the round trip."""
    trip = quality.round_trip_ms
    parts = ["round trip not known" if trip is None else f"round trip {trip:.1f} ms"]
    for name, up, down, unit in (
        ("loss", _percent(quality.loss_up), _percent(quality.loss_down), "%"),
        ("jitter", quality.jitter_up_ms, quality.jitter_down_ms, "ms"),
        ("buffer", quality.buffer_up_ms, quality.buffer_down_ms, "ms"),
    ):
        ways = [
            f"{way} {value:.1f}" for way, value in (("up", up), ("down", down)) if value is not None
        ]
        if ways:
            parts.append(f"{name} {' '.join(ways)} {unit}")
    return f"network: {', '.join(parts)}; {_path(quality)}"


def _path(quality: ConnectionReport) -> str:
    path = quality.codec or quality.transport
    if quality.protocol:
        path += f" over {quality.protocol}"
    if quality.local_candidate and quality.remote_candidate:
        path += f", {quality.local_candidate} to {quality.remote_candidate}"
    return path


def _loss(flow: AudioFlowStats) -> float | None:
    return _share(flow.lost, flow.packets)


def _share(part: float | None, whole: float | None) -> float | None:
    return round(part / whole, 4) if whole and part is not None else None


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
