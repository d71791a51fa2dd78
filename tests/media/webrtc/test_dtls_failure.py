"""A certificate that OpenSSL refuses, as FFmpeg with GnuTLS makes it: the log explains it."""

import asyncio
import logging

import pytest
from aiortc import RTCPeerConnection, RTCSessionDescription
from aiortc.rtcdtlstransport import RTCCertificate, generate_certificate
from cryptography.hazmat.primitives.asymmetric import ec

from media.webrtc.dtls_failure import describe_failure
from media.webrtc.peer import CloseReason, Peer, PeerCallbacks, PeerSettings
from tests.media.paths import on_both_paths

pytestmark = pytest.mark.live

DEADLINE_S = 20


def sender() -> RTCPeerConnection:
    made = RTCPeerConnection()
    key = ec.generate_private_key(ec.SECP224R1())
    weak = RTCCertificate(key=key, cert=generate_certificate(key))
    vars(made)["_RTCPeerConnection__certificates"] = [weak]
    made.addTransceiver("audio", direction="sendonly")
    return made


@on_both_paths
@pytest.mark.parametrize("role", ["passive", "active"])
def test_the_log_names_the_cause_and_the_remedy(
    role: str, path: PeerSettings, caplog: pytest.LogCaptureFixture
) -> None:
    """The peer is a DTLS server, as FFmpeg is by default, or a client. Only the fast path sees the
    certificate of a client that it refused."""

    async def main() -> CloseReason:
        theirs = sender()
        ours = Peer(PeerCallbacks(lambda: None, lambda _: None, lambda _: None), path)
        await theirs.setLocalDescription(await theirs.createOffer())
        offer = theirs.localDescription.sdp.replace("setup:actpass", f"setup:{role}")
        answer = await ours.answer(offer)
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(ours.run())
            await theirs.setRemoteDescription(RTCSessionDescription(answer, "answer"))
        await theirs.close()
        return running.result()

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(main()) is CloseReason.CONNECT_FAILED
    (line,) = [one.getMessage() for one in caplog.records if "DTLS" in one.getMessage()]
    for said in ("secp224r1", "GnuTLS", "-cert_file", "prime256v1"):
        assert said in line
    sees_curve = role == "active" and path.ice.wants_fast_path
    assert ("because of the sender's certificate on" in line) is sees_curve


@pytest.mark.parametrize(
    ("curve", "said"),
    [("secp224r1", "-cert_file"), ("brainpoolP256r1", "secp256r1, secp384r1"), ("", "GnuTLS")],
)
def test_every_cause_has_a_description(curve: str, said: str) -> None:
    assert said in describe_failure(curve)
