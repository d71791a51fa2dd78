import pytest

from core.errors import PayloadTooLarge, RequestError
from media.webrtc.ice.candidates import candidates_in
from media.webrtc.sdp import MAX_SDP_BYTES, checked_sdp, max_message_bytes
from tests.media.offers import OFFER


def test_candidates_are_removed_and_the_useful_ones_returned() -> None:
    checked = checked_sdp(OFFER)
    assert "candidate" not in checked
    assert [(one.ip, one.port) for one in candidates_in(OFFER + OFFER)] == [("192.0.2.7", 50001)]
    assert checked.count("\r\n") == OFFER.count("\n") - 3


@pytest.mark.parametrize(
    ("said", "expected"),
    [("", 65_536), ("a=max-message-size:262144\r\n", 262_144), ("a=max-message-size:0\n", None)],
)
def test_the_message_limit_of_the_channel_is_read(said: str, expected: int | None) -> None:
    assert max_message_bytes(OFFER + said) == expected
    assert max_message_bytes(OFFER[: OFFER.index("m=application")]) is None


@pytest.mark.parametrize(
    ("at_session", "at_section", "expected"),
    [
        ("", "", "sendrecv"),
        ("a=recvonly\n", "", "recvonly"),
        ("a=inactive\n", "a=sendonly\n", None),
    ],
)
def test_a_missing_direction_is_taken_from_the_session(
    at_session: str, at_section: str, expected: str | None
) -> None:
    offer = OFFER.replace("a=sendrecv\n", at_section).replace("a=group", f"{at_session}a=group")
    audio, data = checked_sdp(offer).split("m=audio")[1].split("m=application")
    assert audio.endswith(f"a={expected}\r\n" if expected else "PCMU/8000\r\n")
    assert data == OFFER.split("m=application")[1].replace("\n", "\r\n")


def without(*starts: str) -> str:
    return "\n".join(line for line in OFFER.splitlines() if not line.startswith(starts))


AUDIO = OFFER[OFFER.index("m=audio") : OFFER.index("m=application")]

BAD = {
    "empty": ("", "invalid_sdp", "v=0"),
    "not sdp": ("hello", "invalid_sdp", "v=0"),
    "json": ('{"sdp": "v=0"}', "invalid_sdp", "v=0"),
    "only a version": ("v=0", "sdp_without_audio", "no audio"),
    "data only": (OFFER.replace(AUDIO, ""), "sdp_without_audio", "no audio"),
    "audio off": (OFFER.replace("m=audio 9", "m=audio 0"), "sdp_without_audio", "no audio"),
    "broken line": (OFFER.replace("m=audio 9", "m=audio x"), "invalid_sdp", "parsed"),
    "broken candidate": (OFFER.replace("192.0.2.7 50001", ""), "invalid_sdp", "parsed"),
    "broken rtpmap": (OFFER.replace("opus/48000/2", "opus"), "invalid_sdp", "parsed"),
    "no opus": (OFFER.replace("opus/", "isac/"), "sdp_without_opus", "Opus"),
    "settings of no codec": (
        f"{OFFER.split('m=application', maxsplit=1)[0]}a=fmtp:96 x=1",
        "invalid_sdp",
        "parsed",
    ),
    "no ufrag": (without("a=ice-ufrag"), "invalid_sdp", "ufrag"),
    "no pwd": (without("a=ice-pwd"), "invalid_sdp", "pwd"),
    "two sections of one name": (OFFER.replace("mid:1", "mid:0"), "invalid_sdp", "one mid"),
    "a bundle of nothing": (OFFER.replace("BUNDLE 0 1", "BUNDLE 7 1"), "invalid_sdp", "bundles"),
    "no fingerprint": (without("a=fingerprint"), "invalid_sdp", "fingerprint"),
}


@pytest.mark.parametrize(("sdp", "code", "message"), BAD.values(), ids=BAD)
def test_bad_sdp_is_refused_with_its_reason(sdp: str, code: str, message: str) -> None:
    with pytest.raises(RequestError, match=message) as error:
        checked_sdp(sdp)
    assert error.value.code == code


@pytest.mark.parametrize("sdp", [OFFER + "a=x\n" * MAX_SDP_BYTES, OFFER + AUDIO * 8])
def test_too_large_sdp_is_refused_with_the_limit(sdp: str) -> None:
    with pytest.raises(PayloadTooLarge, match="limit") as error:
        checked_sdp(sdp)
    assert error.value.code == "sdp_too_large"
