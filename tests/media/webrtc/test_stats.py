"""The connection statistics of a peer, with packets lost on purpose."""

import asyncio
from itertools import count

import pytest

from core.net.connection_stats import ConnectionStats
from media.webrtc.aiortc_internals.transport import lose_packets
from media.webrtc.peer import Peer, PeerCallbacks, PeerSettings
from media.webrtc.stats import WINDOW, PacketCounts, PacketCountWindow
from tests.media.paths import on_both_paths

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("talkers")]


async def measured(peer: Peer, until_packets: int) -> ConnectionStats:
    """Returns the totals once the other end has reported loss and a round trip."""
    while True:
        quality = await peer.meter().measure()
        assert quality.received is not None
        assert quality.sent is not None
        is_known = quality.round_trip_ms is not None and quality.sent.lost
        if quality.received.packets >= until_packets and is_known:
            return quality
        await asyncio.sleep(0.1)


@on_both_paths
def test_induced_loss_is_reported_at_both_ends(path: PeerSettings) -> None:
    """Each tenth packet to the answerer is lost, and none to the caller."""

    async def main() -> tuple[ConnectionStats, ConnectionStats]:
        callbacks = PeerCallbacks(lambda: None, lambda _: None, lambda _: None)
        caller, answerer = Peer(callbacks, path), Peer(callbacks, path)
        tick = count()
        lose_packets(answerer._audio.receiver, lambda: next(tick) % 10 == 5)
        await caller.accept(await answerer.answer(await caller.offer()))
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            tasks.create_task(caller.run())
            tasks.create_task(answerer.run())
            there = await measured(caller, 100)
            here = await answerer.meter().measure()
            caller.stop()
            answerer.stop()
        return here, there

    here, there = asyncio.run(main())
    for quality in (here, there):
        assert (quality.transport, quality.codec) == ("webrtc", "opus")
        assert quality.protocol == ("udp" if path.ice.wants_fast_path else None)
        if path.ice.wants_fast_path:
            assert quality.local_candidate == "host"
            assert quality.remote_candidate in ("host", "prflx")
    assert here.received is not None
    assert there.received is not None
    assert there.sent is not None
    assert here.received.loss == pytest.approx(0.1, abs=0.03)
    if path.ice.wants_fast_path:
        assert here.received.buffer_ms is not None
        assert here.received.buffer_ms > 1, "each gap holds a packet for 20 ms"
    assert here.received.jitter_ms is not None
    assert there.received.lost == 0
    assert there.received.buffer_ms == (0 if path.ice.wants_fast_path else None)
    assert there.sent.loss == pytest.approx(0.1, abs=0.06), "as the receiver reports it"
    assert there.round_trip_ms is not None
    assert 0 <= there.round_trip_ms < 10_000  # the machine may be busy


def test_the_loss_covers_only_recent_packets() -> None:
    recent = PacketCountWindow()
    losses = [recent.push(PacketCounts(100 * n, 20)).loss for n in range(1, WINDOW + 3)]
    assert losses[0] == 0.2
    assert losses[WINDOW - 1] == pytest.approx(20 / (100 * WINDOW))
    assert losses[WINDOW] == losses[WINDOW + 1] == 0


def test_loss_is_unknown_before_the_first_packet() -> None:
    assert PacketCountWindow().push(PacketCounts()).loss is None
    late = PacketCountWindow()
    late.push(PacketCounts(100, 3))
    assert late.push(PacketCounts(200, 2)).loss == pytest.approx(0.01), "one of them came after all"
