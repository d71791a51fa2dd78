"""Offers of 64 KiB that try to cost much time: each is answered or refused quickly."""

import asyncio
from collections.abc import Callable
from itertools import accumulate, count, takewhile
from time import process_time

import pytest

from core.errors import RequestError
from media.webrtc.peer import Peer, PeerCallbacks
from media.webrtc.sdp import MAX_SDP_BYTES
from tests.media.offers import OFFER

pytestmark = pytest.mark.live

MAX_CPU_S = 0.5
"The longest time for which the loop of all calls may stall."

AUDIO, DATA = OFFER.index("m=audio"), OFFER.index("m=application")

Line = Callable[[int], str]


def filled(offer: str, *lines: Line, at: str = "a=mid:0\n") -> str:
    """Fills the offer with equal shares of these lines before `at`, up to the limit."""
    room = MAX_SDP_BYTES - len(offer) - 100
    each = room // len(lines)
    wholes = [("".join(f"{line(i)}\n" for i in range(fitting(line, each)))) for line in lines]
    head, tail = offer.split(at, 1)
    return f"{head}{''.join(wholes)}{at}{tail}"


def fitting(line: Line, room: int) -> int:
    sizes = accumulate(len(line(i)) + 1 for i in count())
    return next(n for n, size in enumerate(sizes) if size > room)


def codecs(i: int) -> str:
    return f"a=rtpmap:{i} opus/48000/2"


def sections() -> str:
    """Returns an offer with the most lines that the limits allow, in the most sections."""
    audio = OFFER[AUDIO:DATA]
    codecs_of_one = "".join(f"a=rtpmap:{i} x/1\n" for i in range(1, 111))
    feedback = "a=rtcp-fb:* x\n" * 32 + "a=rtcp-fb:110 x\n" * 224
    many = [
        audio.replace("mid:0", f"mid:{n}").replace("a=rtpmap:0 ", f"{codecs_of_one}a=rtpmap:0 ")
        + feedback
        for n in range(8)
    ]
    whole = OFFER[:AUDIO] + "".join(many)
    return whole.replace("BUNDLE 0 1", f"BUNDLE {' '.join(map(str, range(8)))}")


BOMBS = {
    "payload types": OFFER.replace("SAVPF 111 0", "SAVPF 111 0" + " 96" * 21_000),
    "codecs": filled(OFFER, codecs),
    "feedback for all codecs": filled(OFFER, codecs, lambda _: "a=rtcp-fb:* x"),
    "parameters of the last codec": filled(OFFER, codecs, lambda _: "a=fmtp:111 x=1"),
    "codecs and feedback in every section": sections(),
    "sources": filled(OFFER, lambda i: f"a=ssrc:{i} cname:x"),
    "groups of sources": filled(OFFER, lambda _: f"a=ssrc-group:FID{' 1' * 500}"),
    "header extensions": filled(OFFER, lambda i: f"a=extmap:{i} urn:{i}"),
    "fingerprints": filled(OFFER, lambda _: "a=fingerprint:sha-256 AA:BB"),
    "groups": filled(OFFER, lambda _: "a=group:BUNDLE 0 1", at="m=audio"),
    "groups of all": filled(OFFER, lambda _: f"a=group:BUNDLE{' 0' * 500}", at="m=audio"),
    "candidates": filled(OFFER, lambda i: f"a=candidate:1 1 udp 1 192.0.2.7 {i + 1} typ host"),
    "one number": OFFER.replace("111 opus", f"{'1' * 50_000} opus"),
}


def test_the_bombs_are_nearly_as_large_as_allowed() -> None:
    assert all(len(one) <= MAX_SDP_BYTES for one in BOMBS.values())
    assert len(BOMBS) == len(list(takewhile(lambda one: len(one) > 40_000, BOMBS.values())))


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_costs_little_processor_time(name: str) -> None:
    async def cpu_s() -> float:
        peer = Peer(PeerCallbacks(lambda: None, lambda _: None, lambda _: None))
        began = process_time()
        try:
            await peer.answer(BOMBS[name])
        except RequestError as refused:
            print(refused)
        took = process_time() - began
        await peer.close()
        return took

    took_s = asyncio.run(cpu_s())
    print(f"{took_s:.3f} s")
    assert took_s < MAX_CPU_S
