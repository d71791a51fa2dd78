"""An invalid request gets a stable error code, and leaves nothing behind."""

import pytest

from tests.media.offers import OFFER
from tests.raw_peer import RawPeer
from tests.server.http.harness import error_of
from tests.signaling.whip.client import FRAGMENT, SDP, Publisher, beeps
from tests.signaling.whip.servers import Server, Setup, against

pytestmark = pytest.mark.live

GOOD = OFFER.replace("a=sendrecv", "a=sendonly")
VIDEO = "m=video 9 UDP/TLS/RTP/SAVPF 96\r\na=sendonly\r\n"

OFFERS = [
    ("no type", {}, GOOD, 415, "unsupported_media_type"),
    ("JSON", {"Content-Type": "application/json"}, GOOD, 415, "unsupported_media_type"),
    ("a fragment", FRAGMENT, GOOD, 415, "unsupported_media_type"),
    ("nothing", SDP, "", 400, "invalid_sdp"),
    ("no SDP", SDP, "hello", 400, "invalid_sdp"),
    ("no UTF-8", SDP, b"v=0\xff", 400, "invalid_sdp"),
    ("no sections", SDP, "v=0\r\n", 422, "offer_not_acceptable"),
    ("video", SDP, GOOD + VIDEO, 422, "offer_not_acceptable"),
    ("recvonly", SDP, GOOD.replace("sendonly", "recvonly"), 422, "offer_not_acceptable"),
    ("no Opus", SDP, GOOD.replace("opus/48000/2", "PCMU/8000"), 422, "offer_not_acceptable"),
    ("no ICE", SDP, GOOD.replace("a=ice-", "a=x-"), 400, "invalid_sdp"),
    ("no DTLS", SDP, GOOD.replace("a=fingerprint", "a=x-fingerprint"), 400, "invalid_sdp"),
    ("two mids", SDP, GOOD.replace("a=mid:1", "a=mid:0"), 400, "invalid_sdp"),
    ("broken rtpmap", SDP, GOOD.replace("a=rtpmap:111 ", "a=rtpmap:x "), 400, "invalid_sdp"),
    ("a bomb", SDP, GOOD + "a=x\r\n" * 14_000, 413, "too_large"),
    ("too much", SDP, "v=0" + " " * 200_000, 413, "too_large"),
]


@pytest.mark.parametrize(
    ("headers", "body", "status", "code"),
    [row[1:] for row in OFFERS],
    ids=[row[0] for row in OFFERS],
)
def test_an_invalid_offer_is_refused(
    headers: dict[str, str], body: str, status: int, code: str
) -> None:
    async def scene(server: Server) -> None:
        response = await server.http.post("/whip", data=body or b"", headers=headers)
        assert response.status == status, await response.text()
        assert (await error_of(response))["code"] == code
        assert "Location" not in response.headers

    against(scene)


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("video=no", 400, "invalid_value"),
        ("language=xx", 400, "unsupported_language"),
        ("model=nobody", 404, "model_not_found"),
    ],
)
def test_an_invalid_query_is_refused(query: str, status: int, code: str) -> None:
    async def scene(server: Server) -> None:
        raw = RawPeer(beeps(100), "sendonly")
        offer = await raw.offer()
        response = await server.http.post(f"/whip?{query}", data=offer, headers=SDP)
        assert response.status == status, await response.text()
        assert (await error_of(response))["code"] == code
        await raw.close()

    against(scene)


CANDIDATE = "a=candidate:1 1 udp 1 192.0.2.1 5000 typ host\r\n"

PATCHES = [
    ("no type", {"Content-Type": ""}, CANDIDATE, 415, "unsupported_media_type"),
    ("an offer", SDP, CANDIDATE, 415, "unsupported_media_type"),
    ("nothing", {}, b"", 400, "invalid_sdp_fragment"),
    ("no SDP", {}, b"hello", 400, "invalid_sdp_fragment"),
    ("no UTF-8", {}, b"a=\xff", 400, "invalid_sdp_fragment"),
    ("no address", {}, CANDIDATE.replace("192.0.2.1", "a.example"), 400, "invalid_candidate"),
    ("no port", {}, CANDIDATE.replace("5000", "x"), 400, "invalid_candidate"),
    ("cut off", {}, CANDIDATE[:30] + "\r\n", 400, "invalid_candidate"),
    ("too many", {}, CANDIDATE * 65, 413, "too_large"),
    ("too much", {}, "a=" + "x" * 70_000, 413, "too_large"),
]


@pytest.mark.parametrize(
    ("headers", "body", "status", "code"),
    [row[1:] for row in PATCHES],
    ids=[row[0] for row in PATCHES],
)
def test_an_invalid_fragment_is_refused(
    headers: dict[str, str], body: bytes, status: int, code: str
) -> None:
    """The publication goes on."""

    async def scene(server: Server) -> None:
        publisher = Publisher(server.http, RawPeer(beeps(100, 20_000), "sendonly"))
        await publisher.publish()
        response = await server.http.patch(
            publisher.location,
            data=body,
            headers={**FRAGMENT, "If-Match": publisher.etag, **headers},
        )
        assert response.status == status, await response.text()
        assert (await error_of(response))["code"] == code
        await publisher.raw.connected.wait()
        assert (await publisher.end()).status == 200
        await publisher.raw.close()

    against(scene)


def test_candidates_are_limited_over_all_patches() -> None:
    async def scene(server: Server) -> None:
        publisher = Publisher(server.http, RawPeer(beeps(100, 20_000), "sendonly"))
        await publisher.publish()
        statuses = []
        for part in range(4):
            body = "".join(CANDIDATE.replace("5000", str(6000 + 30 * part + n)) for n in range(30))
            statuses.append((await publisher.patch(body, If_Match=publisher.etag)).status)
        assert statuses == [204, 204, 413, 413]
        await publisher.end()
        await publisher.raw.close()

    against(scene)


@pytest.mark.parametrize(
    ("method", "path"),
    [("PUT", "/whip"), ("DELETE", "/whip"), ("PATCH", "/whip"), ("POST", "/whip/whip_1")],
)
def test_other_methods_are_refused(method: str, path: str) -> None:
    async def scene(server: Server) -> None:
        response = await server.http.request(method, path)
        assert response.status == 405
        assert response.headers["Allow"]

    against(scene)


@pytest.mark.parametrize("ident", ["whip_0", "x", "..%2F..", "%00", "a" * 500])
def test_an_unknown_publication_is_not_found(ident: str) -> None:
    async def scene(server: Server) -> None:
        for method in ("DELETE", "PATCH", "GET"):
            response = await server.http.request(method, f"/whip/{ident}", headers=FRAGMENT)
            assert response.status == 404

    against(scene)


def test_video_can_be_ignored() -> None:
    """OBS always offers video; the answer marks it as `inactive`."""

    async def scene(server: Server) -> None:
        publisher = Publisher(server.http, RawPeer(beeps(600, 20_000), "sendonly"))
        publisher.raw.pc.addTransceiver("video", direction="sendonly")
        response = await publisher.publish("/whip?video=ignore")
        assert response.status == 201
        answer = await response.text()
        video = answer[answer.index("m=video") :]
        assert "a=inactive" in video
        await publisher.raw.connected.wait()
        await publisher.end()
        await publisher.raw.close()

    against(scene, Setup())
