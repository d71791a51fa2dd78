"""Connectivity with a plain aiortc peer, and the resources left after it is lost."""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable

import pytest
from aiortc.sdp import candidate_from_sdp
from psutil import Process

from core.audio import Pcm
from core.errors import RequestError
from media.webrtc.ice import consent
from media.webrtc.ice.candidates import MAX_CANDIDATES, candidates_in, read_candidate
from media.webrtc.ice.settings import IceSettings, PortRange
from media.webrtc.peer import CloseReason, PeerSettings
from tests.media.paths import on_both_paths
from tests.media.peer_ends import End, all_tasks_ended
from tests.media.signals import peak_hz, tone
from tests.media.webrtc.ice.nat import Nat
from tests.ports import free_ports
from tests.raw_peer import RATE_HZ, RawPeer, candidates_of, with_hidden_addresses
from tests.raw_peer import without_candidates as bare

pytestmark = pytest.mark.live

OURS_HZ, THEIRS_HZ = 500, 900
CANDIDATE = "candidate:1 1 udp 2122260223 192.0.2.1 51712 typ host"


def run(scene: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(25):
            await scene()

    asyncio.run(bounded())


def stranger() -> RawPeer:
    raw = RawPeer(tone(THEIRS_HZ, 20 * RATE_HZ, RATE_HZ))
    raw.channel("oai-events")
    return raw


def is_ours(pcm: Pcm) -> bool:
    return abs(peak_hz(pcm, RATE_HZ) - OURS_HZ) < 15


async def talk(raw: RawPeer, end: End) -> None:
    """Exchanges sound and events in both directions, then hangs up."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(end.peer.run())
        await end.heard_a_second.wait()
        await raw.hears(is_ours)
        await end.opened.wait()
        end.peer.send("hello")
        assert await raw.texts.get() == "hello"
        await raw.close()
    assert end.closed == [CloseReason.REMOTE_CLOSED]


@on_both_paths
def test_a_browser_with_hidden_addresses_connects(
    path: PeerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its mDNS names are not looked up, because aioice would wait for an answer to each."""
    lookups: list[object] = []
    monkeypatch.setattr("aioice.ice.get_or_create_mdns_protocol", lookups.append)

    async def scene() -> None:
        raw, end = stranger(), End(OURS_HZ, path)
        offer = with_hidden_addresses(await raw.offer())
        hidden = candidates_of(offer)
        assert hidden
        assert all(".local " in one for one in hidden)
        await raw.accept(await end.peer.answer(offer))
        await talk(raw, end)
        assert lookups == []

    run(scene)


@on_both_paths
def test_a_peer_is_reached_by_trickled_candidates(path: PeerSettings) -> None:
    """It does not know our addresses, so only we can begin."""

    async def scene() -> None:
        raw, end = stranger(), End(OURS_HZ, path)
        offer = await raw.offer()
        await raw.accept(bare(await end.peer.answer(bare(offer))))
        await end.peer.add_candidates(candidates_of(offer))
        await talk(raw, end)

    run(scene)


def test_candidates_of_one_section_apply_to_all() -> None:
    """With max-bundle only the first section has them (RFC 9429, 4.1.1), but aiortc reads the
    last."""

    async def scene() -> None:
        raw, end = stranger(), End(OURS_HZ)
        offer = await raw.offer()
        section = offer.index("m=application")
        first_only = offer[:section] + bare(offer[section:])
        await raw.accept(bare(await end.peer.answer(first_only)))
        await talk(raw, end)

    run(scene)


def test_a_thousand_candidates_cost_no_more_than_a_few() -> None:
    async def scene() -> None:
        raw, end = stranger(), End(OURS_HZ, PeerSettings(connect_timeout_s=0.5))
        lines = [f"a=candidate:{n} 1 udp {n} 192.0.2.1 {5000 + n} typ host" for n in range(1000)]
        offer = bare(await raw.offer()).rstrip() + "\r\n" + "\r\n".join(lines) + "\r\n"
        assert len(candidates_in(offer)) == MAX_CANDIDATES
        began_s = time.process_time()
        await end.peer.answer(offer)
        await end.peer.run()
        assert time.process_time() - began_s < 0.5
        await raw.close()

    run(scene)


def test_a_call_uses_only_the_configured_ports() -> None:
    async def scene(ports: PortRange) -> None:
        raw, end = stranger(), End(OURS_HZ, PeerSettings(ice=IceSettings(ports=ports)))
        answer = await end.peer.answer(await raw.offer())
        used = {int(one.split()[5]) for one in candidates_of(answer)}
        assert used <= set(range(ports.first, ports.last + 1))
        await raw.accept(answer)
        await talk(raw, end)

    run(lambda: scene(free_ports(8)))


@pytest.mark.parametrize(
    "line",
    [
        CANDIDATE.replace(" udp ", " tcp ") + " tcptype active",
        CANDIDATE.replace(":1 1 ", ":1 2 "),
        CANDIDATE.replace("192.0.2.1", "4f5b3c2a.local"),
    ],
)
def test_useless_candidates_are_ignored(line: str) -> None:
    assert read_candidate(line) is None
    assert read_candidate(CANDIDATE) is not None


@pytest.mark.parametrize(
    "line",
    [
        "",
        "candidate:",
        "a=candidate:1 1 udp 1 192.0.2.1 1 typ host",
        CANDIDATE.replace("51712", "0"),
        CANDIDATE.replace("51712", "65536"),
        CANDIDATE.replace("51712", "x"),
        CANDIDATE.replace("192.0.2.1", "example.com"),
        CANDIDATE.replace("192.0.2.1", "[192.0.2.1"),
        CANDIDATE + " x" * 300,
        "candidate:1 1 udp 1 192.0.2.1 1",
    ],
)
def test_bad_candidates_are_refused(line: str) -> None:
    with pytest.raises(RequestError) as refused:
        read_candidate(line)
    assert refused.value.code == "invalid_candidate"


async def left(before_fds: int) -> None:
    """Asserts that no task and no socket is left of a call."""
    await all_tasks_ended()
    gc.collect()
    assert Process().num_fds() == before_fds


async def warm_up() -> int:
    """Returns the number of open files once asyncio and aiortc have opened what they keep."""
    raw, end = stranger(), End(OURS_HZ)
    await raw.accept(await end.peer.answer(await raw.offer()))
    await talk(raw, end)
    await all_tasks_ended()
    return Process().num_fds()


def test_a_killed_peer_is_freed_in_bounded_time() -> None:
    async def scene() -> None:
        before = await warm_up()
        raw, end = stranger(), End(OURS_HZ, PeerSettings(vanished_timeout_s=1))
        await raw.accept(await end.peer.answer(await raw.offer()))
        async with asyncio.TaskGroup() as tasks:
            over = tasks.create_task(end.peer.run())
            await end.heard_a_second.wait()
            raw.cut()
            began_s = asyncio.get_running_loop().time()
            assert await over is CloseReason.CONNECTION_LOST
            assert asyncio.get_running_loop().time() - began_s < 10  # without the setting: 15
        await raw.close()
        await left(before)

    run(scene)


def test_an_unreachable_peer_is_freed() -> None:
    """Its candidates lead nowhere (TEST-NET-1), and it sends no checks."""

    async def scene() -> None:
        before = await warm_up()
        raw, end = stranger(), End(OURS_HZ, PeerSettings(connect_timeout_s=0.3))
        await end.peer.answer(bare(await raw.offer()))
        await end.peer.add_candidates([CANDIDATE])
        assert await end.peer.run() is CloseReason.CONNECT_TIMEOUT
        await raw.close()
        await left(before)

    run(scene)


def test_consent_that_is_not_renewed_ends_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """By RFC 7675 this holds for a peer that still sends packets but no longer answers our
    checks."""
    monkeypatch.setattr(consent, "CHECK_INTERVAL_S", 0.1)
    monkeypatch.setattr(consent, "EXPIRY_S", 1.0)

    async def scene() -> None:
        before = await warm_up()
        raw, end = stranger(), End(OURS_HZ)
        await raw.accept(await end.peer.answer(await raw.offer()))
        async with asyncio.TaskGroup() as tasks:
            over = tasks.create_task(end.peer.run())
            await end.heard_a_second.wait()
            theirs = raw.pc.getSenders()[0].transport.transport.iceGatherer._connection
            monkeypatch.setattr(theirs, "request_received", lambda *_: None)
            assert await over is CloseReason.CONNECTION_LOST
        await raw.close()
        await left(before)

    run(scene)


def test_a_late_answer_of_a_busy_peer_renews_consent(monkeypatch: pytest.MonkeyPatch) -> None:
    """aioice would accept no answer after half a second."""
    monkeypatch.setattr(consent, "CHECK_INTERVAL_S", 0.1)
    monkeypatch.setattr(consent, "EXPIRY_S", 1.5)

    async def scene() -> None:
        raw, end = stranger(), End(OURS_HZ)
        await raw.accept(await end.peer.answer(await raw.offer()))
        async with asyncio.TaskGroup() as tasks:
            over = tasks.create_task(end.peer.run())
            await end.heard_a_second.wait()
            theirs = raw.pc.getSenders()[0].transport.transport.iceGatherer._connection
            take, loop = theirs.request_received, asyncio.get_running_loop()
            late = lambda *request: loop.call_later(0.7, take, *request)  # noqa: E731
            monkeypatch.setattr(theirs, "request_received", late)
            done, _ = await asyncio.wait([over], timeout=2.5)
            assert not done
            await raw.close()
        assert end.closed == [CloseReason.REMOTE_CLOSED]

    run(scene)


def nominating(raw: RawPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the peer nominate the pair with each check, as Chromium does; aioice does so once."""
    connection = raw.pc.getSenders()[0].transport.transport.iceGatherer._connection
    build = connection.build_request
    monkeypatch.setattr(connection, "build_request", lambda pair, nominate: build(pair, True))


def test_a_peer_is_followed_to_a_new_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consent, "CHECK_INTERVAL_S", 0.2)

    async def scene() -> None:
        raw, end = stranger(), End(OURS_HZ)
        nominating(raw, monkeypatch)
        answer = await end.peer.answer(bare(await raw.offer()))
        ours = next(one for one in candidates_of(answer) if "." in one.split()[4])
        address, port = ours.split()[4:6]
        nat = Nat((address, int(port)))
        await nat.open()
        await raw.accept(bare(answer))
        seen = candidate_from_sdp(f"1 1 udp 2122260223 {address} {nat.port} typ host")
        seen.sdpMid = "0"
        await raw.pc.addIceCandidate(seen)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(end.peer.run())
            await end.heard_a_second.wait()
            await raw.hears(is_ours)
            await nat.move()
            await nat.answered.wait()
            await raw.close()
        nat.close()
        assert end.closed == [CloseReason.REMOTE_CLOSED]

    run(scene)
