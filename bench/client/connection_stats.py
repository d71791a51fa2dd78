"""Quality of the connection, from measurements at the client and reports of an Earshot server."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.net.connection_stats import AudioFlowStats, ConnectionStats

QUALITY_EVENT = "earshot.connection"
"Type of the event in which an Earshot server reports on the connection."


@dataclass(frozen=True, slots=True)
class ConnectionReport:
    """Quality of a connection since its start; jitter and round trip are the latest values.

    "up" is from the client to the server. None: not known.
    """

    transport: str
    codec: str | None
    protocol: str | None
    local_candidate: str | None
    remote_candidate: str | None
    round_trip_ms: float | None
    loss_up: float | None
    "Share of lost packets, 0 to 1."
    loss_down: float | None
    jitter_up_ms: float | None
    jitter_down_ms: float | None
    buffer_up_ms: float | None
    "Mean time that packets stayed in the server's jitter buffer."
    buffer_down_ms: float | None
    "Mean time that packets stayed in the client's jitter buffer."


def combined_report(client: ConnectionStats, server: Mapping[str, Any]) -> ConnectionReport:
    """Returns the measurements of both sides in one report.

    server: its latest `earshot.connection`; empty if there was none.
    """
    up, down = client.sent or AudioFlowStats(), client.received or AudioFlowStats()
    # The server's counts are better: they include packets that arrived too late to be played.
    server_up = server.get("up") or {}
    return ConnectionReport(
        transport=client.transport,
        codec=client.codec,
        protocol=client.protocol,
        local_candidate=client.local_candidate,
        remote_candidate=client.remote_candidate,
        round_trip_ms=_rounded(_first(client.round_trip_ms, server.get("round_trip_ms"))),
        loss_up=_first(_share(server_up.get("lost"), server_up.get("packets")), _loss(up)),
        loss_down=_loss(down),
        jitter_up_ms=_rounded(_first(server_up.get("jitter_ms"), up.jitter_ms)),
        jitter_down_ms=_rounded(down.jitter_ms),
        buffer_up_ms=_rounded(server_up.get("buffer_ms")),
        buffer_down_ms=_rounded(down.buffer_ms),
    )


def quality_line(quality: ConnectionReport) -> str:
    """Returns one line for people. Unknown values are left out, except the round trip time."""
    round_trip_ms = quality.round_trip_ms
    parts = [
        "round trip not known" if round_trip_ms is None else f"round trip {round_trip_ms:.1f} ms"
    ]
    for name, up, down, unit in (
        ("loss", _percent(quality.loss_up), _percent(quality.loss_down), "%"),
        ("jitter", quality.jitter_up_ms, quality.jitter_down_ms, "ms"),
        ("buffer", quality.buffer_up_ms, quality.buffer_down_ms, "ms"),
    ):
        directions = [
            f"{direction} {value:.1f}"
            for direction, value in (("up", up), ("down", down))
            if value is not None
        ]
        if directions:
            parts.append(f"{name} {' '.join(directions)} {unit}")
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
