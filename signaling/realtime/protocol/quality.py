"""`earshot.connection`: how good the connection is, for clients that list it in `include`."""

from time import perf_counter
from typing import Any

from aiohttp import web as aioweb

from core.connection_stats import AudioFlowStats, ConnectionStats

QUALITY_EVENT = "earshot.connection"


def connection_json(quality: ConnectionStats) -> dict[str, Any]:
    """`up`: from the client to us."""
    return {
        "transport": quality.transport,
        "round_trip_ms": _rounded(quality.round_trip_ms),
        "codec": quality.codec,
        "protocol": quality.protocol,
        "local_candidate": quality.local_candidate,
        "remote_candidate": quality.remote_candidate,
        "up": _flow_json(quality.received),
        "down": _flow_json(quality.sent),
    }


def _flow_json(flow: AudioFlowStats | None) -> dict[str, Any] | None:
    if flow is None:
        return None
    return {
        "packets": flow.packets,
        "lost": flow.lost,
        "loss": _rounded(flow.loss, 4),
        "jitter_ms": _rounded(flow.jitter_ms),
        "buffer_ms": _rounded(flow.buffer_ms),
    }


def _rounded(value: float | None, digits: int = 1) -> float | None:
    return None if value is None else round(value, digits)


class RoundTripMeter:
    """A WebSocket's, by its protocol's own pings: every client answers them, proxies pass them."""

    def __init__(self, ws: aioweb.WebSocketResponse) -> None:
        self._ws = ws
        self._asked = 0
        self._asked_at: float | None = None
        "None: the last one is answered."

    async def ask(self) -> None:
        """Nothing while an answer is due. Raises ConnectionError."""
        if self._asked_at is not None:
            return
        self._asked += 1
        self._asked_at = perf_counter()  # uvloop's time counts whole milliseconds
        await self._ws.ping(self._payload())

    def answered(self, payload: bytes) -> float | None:
        """Milliseconds; None for a pong that answers no question of ours, as the heartbeat's."""
        if self._asked_at is None or payload != self._payload():
            return None
        took_s, self._asked_at = perf_counter() - self._asked_at, None
        return 1000 * took_s

    def _payload(self) -> bytes:
        return b"round trip %d" % self._asked
