"""Measures the connection quality of calls, for the metrics and for clients."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from core.net.connection_stats import ConnectionStats
from core.ports import Metrics
from media.webrtc.stats import ConnectionStatsMeter

EVERY_S = 2.0
"""Interval of measurements, in seconds. Users notice changes of about that length, and RTCP reports
are about as frequent. One measurement takes 40 µs."""


async def quality_reports(
    meter: ConnectionStatsMeter, metrics: Metrics
) -> AsyncGenerator[ConnectionStats]:
    """Measures a call's quality at regular intervals, without end, and records it in the
    metrics."""
    while True:
        await asyncio.sleep(EVERY_S)
        quality = await meter.measure()
        count_quality(quality, metrics)
        yield quality


async def record_quality(meter: ConnectionStatsMeter, metrics: Metrics) -> None:
    """Records the quality of a call whose client wants no reports."""
    async with aclosing(quality_reports(meter, metrics)) as qualities:
        async for _ in qualities:
            pass


def count_quality(quality: ConnectionStats, metrics: Metrics) -> None:
    """Records one measurement of a connection in the metrics. `up`: from the client to us."""
    if quality.round_trip_ms is not None:
        seconds = quality.round_trip_ms / 1000
        metrics.observe("earshot_connection_round_trip_seconds", seconds)
    for direction, flow in (("up", quality.received), ("down", quality.sent)):
        if flow is None:
            continue
        if flow.loss is not None:
            metrics.observe("earshot_connection_loss_ratio", flow.loss, direction=direction)
        if flow.jitter_ms is not None:
            seconds = flow.jitter_ms / 1000
            metrics.observe("earshot_connection_jitter_seconds", seconds, direction=direction)
        if flow.buffer_ms is not None:
            metrics.observe("earshot_jitter_buffer_seconds", flow.buffer_ms / 1000)
