"""The input before a call: descriptions, fragments, candidates, and a peer's use of them."""

import asyncio

from core.errors import PayloadTooLarge, RequestError
from media.webrtc.ice.candidates import MAX_CANDIDATES, candidates_in, read_candidate
from media.webrtc.peer import Peer, PeerCallbacks
from media.webrtc.sdp import checked_sdp
from signaling.whip.offer import read_offer, with_whip_code
from signaling.whip.sdp_fragment import (
    check_if_match,
    mid_of,
    read_fragment,
    ufrag_of,
    write_fragment,
)
from tests.fuzz.choices import Drawn, scripts
from tests.fuzz.target import Target
from tests.media.offers import OFFER
from tests.signaling.realtime.client_events import RFC

GOOD_OFFER = OFFER.replace("AA:BB", ":".join(["AB"] * 32))
REFUSED = ("invalid_sdp", "sdp_without_audio", "sdp_without_opus", "sdp_too_large")
WORDS = (
    *("a=sendrecv\r\n", "a=recvonly\r\n", "a=sendonly\r\n", "a=inactive\r\n", "a=mid:0\r\n"),
    *("m=audio 9 UDP/TLS/RTP/SAVPF 111\r\n", "m=video 9 ", "m=application 9 ", "a=rtpmap:111 "),
    *(
        "opus/48000/2",
        "a=group:BUNDLE 0 1\r\n",
        "a=ssrc:1 cname:x\r\n",
        "a=fmtp:111 ",
        "a=extmap:1 ",
    ),
    *("a=ice-ufrag:", "a=ice-pwd:", "a=fingerprint:sha-256 AA:BB\r\n", "a=setup:actpass\r\n"),
    *("a=candidate:1 1 udp 1 192.0.2.1 9 typ host\r\n", " ufrag Gx7p", "a=sctp-port:5000\r\n"),
    *(
        "a=rtcp-fb:111 ",
        "a=rtcp:9 IN IP4 0.0.0.0\r\n",
        "a=ssrc-group:FID 1 2\r\n",
        "a=msid:a b\r\n",
    ),
)


def offers(data: bytes) -> None:
    """Checks that a description is usable, or gives an error that names the fault; WHIP has its
    own."""
    sdp = data.decode(errors="replace")
    assert len(candidates_in(sdp)) <= MAX_CANDIDATES
    try:
        checked = checked_sdp(sdp)
    except RequestError as error:
        assert error.code in REFUSED
        assert with_whip_code(error).code
    else:
        assert checked.startswith("v=0")
    try:
        found = read_offer(data, {})
    except RequestError as error:
        assert error.code in {"invalid_sdp", "offer_not_acceptable"}
    else:
        mid_of(found)
        ufrag_of(found)


def fragments(data: bytes) -> None:
    """Checks that a fragment that was read is usable. The first line of the input is an
    If-Match."""
    header, _, body = data.partition(b"\n")
    try:
        check_if_match(header.decode(errors="replace"), '"etag"')
    except RequestError as error:
        assert error.code == "etag_mismatch"
    try:
        fragment = read_fragment(body)
    except PayloadTooLarge:
        return
    except RequestError as error:
        assert error.code == "invalid_sdp_fragment"
        assert len(str(error)) < 600
        return
    for line in fragment.candidates:
        try:
            read_candidate(line)
        except RequestError as error:
            assert error.code == "invalid_candidate"
    if fragment.ufrag and fragment.password:
        again = write_fragment("0", fragment.ufrag, fragment.password, ())
        assert read_fragment(again.encode()).ufrag == fragment.ufrag


def answering(data: bytes) -> None:
    """Checks that a whole peer answers the description, or refuses it and is closed. The input says
    which lines are removed, repeated or moved, because random bytes would never pass the first
    check."""
    lottery, lines = Drawn(data), GOOD_OFFER.splitlines()
    for _ in range(lottery.randint(1, 6)):
        at = lottery.randrange(len(lines)) if lines else 0
        match lottery.randrange(4):
            case 0:
                del lines[at : at + 1]
            case 1:
                lines[at:at] = lines[at : at + lottery.randint(1, 8)]
            case 2 if lines:
                lines.insert(lottery.randrange(len(lines)), lines.pop(at))
            case _:
                lines.insert(at, lottery.choice(WORDS).strip())
    asyncio.run(_answered("\r\n".join(lines) + "\r\n"))


async def _answered(offer: str) -> None:
    peer = Peer(PeerCallbacks(lambda: None, lambda _: None, lambda _: None))
    try:
        answer = await peer.answer(offer)
        assert answer.startswith("v=0")
    except RequestError as error:
        assert error.code
    finally:
        await peer.close()


TARGETS = (
    Target(
        name="offers",
        one_input=offers,
        seeds=(OFFER.encode(), GOOD_OFFER.replace("\n", "\r\n").encode()),
        words=WORDS,
    ),
    Target(
        name="fragments",
        one_input=fragments,
        seeds=tuple(head + RFC.encode() for head in (b"*\n", b'"etag"\n', b'W/"a", "b"\n')),
        words=WORDS,
    ),
    Target(name="answering", one_input=answering, seeds=scripts(60), few=20, many=10_000),
)
