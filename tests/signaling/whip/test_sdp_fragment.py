"""SDP fragments, If-Match and offers: tables, no I/O."""

import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import PayloadTooLarge, RequestError
from media.webrtc.ice.candidates import MAX_CANDIDATES, read_candidate
from pipeline.shared.settings import SessionSettings
from signaling.whip.offer import MAX_OFFER_BYTES, read_offer, settings_of, with_whip_code
from signaling.whip.sdp_fragment import (
    MAX_FRAGMENT_BYTES,
    SdpFragment,
    check_if_match,
    mid_of,
    read_fragment,
    ufrag_of,
    write_fragment,
)
from tests.signaling.realtime.client_events import HEAD, ONE, PASSWORD, RFC


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (RFC, SdpFragment("Gx7p", (f"{ONE} ufrag Gx7p",), PASSWORD)),
        (RFC.replace("\r\n", "\n"), SdpFragment("Gx7p", (f"{ONE} ufrag Gx7p",), PASSWORD)),
        (f"{HEAD}a={ONE}\r\na={ONE}\r\n", SdpFragment("Gx7p", (ONE, ONE), PASSWORD)),
        (f"a={ONE}\r\n", SdpFragment(None, (ONE,))),
        (HEAD, SdpFragment("Gx7p", (), PASSWORD)),
        (f"{HEAD}m=audio 9 X 0\r\n{HEAD}", SdpFragment("Gx7p", (), PASSWORD)),
        ("a=end-of-candidates", SdpFragment(None, ())),
        (
            f"{HEAD}a={ONE} ufrag Old1\r\n",
            SdpFragment("Gx7p", (), PASSWORD),
        ),  # of the former ICE session
        (f"{HEAD}a=unknown:x\r\nb=AS:1\r\n", SdpFragment("Gx7p", (), PASSWORD)),
    ],
)
def test_valid_fragments_are_read(text: str, read: SdpFragment) -> None:
    assert read_fragment(text.encode()) == read


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"{}",
        b"hello\r\n",
        b"m=audio 9 X 0\r\n",
        f"{HEAD}{HEAD.replace('Gx7p', 'Gx7q')}".encode(),
        HEAD.replace("Gx7p", "Gx").encode(),
        HEAD.replace("Gx7p", "Gx 7p").encode(),
        HEAD.replace("l4Ck9s", "").encode(),
        b"a=ice-ufrag:\r\n",
    ],
)
def test_invalid_fragments_are_refused(data: bytes) -> None:
    with pytest.raises(RequestError) as refused:
        read_fragment(data)
    assert refused.value.code == "invalid_sdp_fragment"


@pytest.mark.parametrize(
    "data",
    [b"a=" + b"x" * MAX_FRAGMENT_BYTES, f"a={ONE}\r\n".encode() * (MAX_CANDIDATES + 1)],
)
def test_fragments_above_the_limits_are_refused(data: bytes) -> None:
    with pytest.raises(PayloadTooLarge):
        read_fragment(data)


@pytest.mark.parametrize("cut", range(0, len(RFC), 7))
def test_a_fragment_cut_anywhere_is_read_or_refused(cut: int) -> None:
    try:
        fragment = read_fragment(RFC[:cut].encode())
    except RequestError:
        return
    assert fragment.ufrag in (None, "Gx7p")


def test_the_ufrag_is_found_in_an_offer() -> None:
    assert ufrag_of(RFC) == "Gx7p"
    assert ufrag_of("v=0\r\n") is None


def test_a_written_fragment_can_be_read() -> None:
    text = write_fragment("audio", "Gx7p", PASSWORD, [ONE])
    assert read_fragment(text.encode()) == SdpFragment("Gx7p", (ONE,), PASSWORD)
    assert PASSWORD not in repr(read_fragment(text.encode()))
    assert mid_of(f"v=0\r\n{VIDEO}a=mid:v\r\n{AUDIO}a=mid:a\r\n{DATA}a=mid:d\r\n") == "a"


def test_the_largest_offer_is_read_quickly() -> None:
    """Each of its sections is read once, however many there are."""
    bomb = "v=0\r\n" + "m=audio \r\n" * 6_500
    began_s = time.process_time()
    assert (mid_of(bomb), ufrag_of(bomb)) == ("0", None)
    with pytest.raises(RequestError):
        read_offer(bomb.encode(), {})
    assert time.process_time() - began_s < 0.5


@pytest.mark.parametrize(
    ("header", "wants_restart"),
    [('"e"', False), ('"a", "e"', False), ('"e" , W/"x"', False), ("*", True), ('"*"', True)],
)
def test_a_matching_if_match_is_accepted(header: str, wants_restart: bool) -> None:
    assert check_if_match(header, '"e"') is wants_restart


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (None, "if_match_required"),
        ("", "etag_mismatch"),
        ("e", "etag_mismatch"),
        ('W/"e"', "etag_mismatch"),
        ('"E"', "etag_mismatch"),
        ('"xe"', "etag_mismatch"),
    ],
)
def test_an_if_match_that_does_not_match_is_refused(header: str | None, code: str) -> None:
    with pytest.raises(RequestError) as refused:
        check_if_match(header, '"e"')
    assert refused.value.code == code


AUDIO = "m=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=sendonly\r\n"
VIDEO = "m=video 9 UDP/TLS/RTP/SAVPF 96\r\na=sendonly\r\n"
DATA = "m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\n"
SESSION = "v=0\r\ns=-\r\n"


@pytest.mark.parametrize(
    ("sdp", "query"),
    [
        (SESSION + AUDIO, {}),
        (SESSION + AUDIO + DATA, {}),
        (SESSION + AUDIO.replace("a=sendonly\r\n", ""), {}),  # none is sendrecv
        (SESSION + "a=sendonly\r\n" + AUDIO.replace("a=sendonly\r\n", ""), {}),
        (SESSION + AUDIO.replace("sendonly", "sendrecv"), {}),
        (SESSION + VIDEO + AUDIO, {"video": "ignore"}),
        (SESSION + VIDEO.replace(" 9 ", " 0 ") + AUDIO, {}),
    ],
)
def test_valid_offers_are_read(sdp: str, query: dict[str, str]) -> None:
    assert read_offer(sdp.encode(), query) == sdp


@pytest.mark.parametrize(
    ("data", "query", "code"),
    [
        (b"", {}, "invalid_sdp"),
        (b"\xff", {}, "invalid_sdp"),
        (b"{}", {}, "invalid_sdp"),
        (SESSION.encode(), {}, "offer_not_acceptable"),
        ((SESSION + DATA).encode(), {}, "offer_not_acceptable"),
        ((SESSION + AUDIO + AUDIO).encode(), {}, "offer_not_acceptable"),
        ((SESSION + AUDIO + VIDEO).encode(), {}, "offer_not_acceptable"),
        ((SESSION + AUDIO.replace(" 9 ", " 0 ")).encode(), {}, "offer_not_acceptable"),
        ((SESSION + AUDIO.replace("send", "recv")).encode(), {}, "offer_not_acceptable"),
        ((SESSION + AUDIO.replace("sendonly", "inactive")).encode(), {}, "offer_not_acceptable"),
        (
            (SESSION + "a=recvonly\r\n" + AUDIO.replace("a=sendonly\r\n", "")).encode(),
            {},
            "offer_not_acceptable",
        ),
        ((SESSION + AUDIO + "m=text 9 X 0\r\n").encode(), {}, "offer_not_acceptable"),
        ((SESSION + AUDIO).encode(), {"video": "yes"}, "invalid_value"),
        (b"v=0" + b" " * MAX_OFFER_BYTES, {}, "too_large"),
    ],
)
def test_invalid_offers_are_refused(data: bytes, query: dict[str, str], code: str) -> None:
    with pytest.raises(RequestError) as refused:
        read_offer(data, query)
    assert refused.value.code == code


def test_the_query_sets_language_and_model() -> None:
    fresh = SessionSettings(language="en", asr="small")
    assert settings_of({}, fresh).language == "en"
    wanted = settings_of({"language": "de", "model": "tiny"}, fresh)
    assert (wanted.answers, wanted.language, wanted.asr) == (False, "de", "tiny")


def test_unacceptable_offers_have_another_code_than_invalid_ones() -> None:
    for code, expected in (
        ("sdp_without_opus", "offer_not_acceptable"),
        ("sdp_without_audio", "offer_not_acceptable"),
        ("invalid_sdp", "invalid_sdp"),
    ):
        assert with_whip_code(RequestError("x", code=code)).code == expected


lines = st.lists(
    st.one_of(
        st.sampled_from([*RFC.splitlines(), *AUDIO.splitlines(), *VIDEO.splitlines(), "v=0"]),
        st.text(max_size=30),
    ),
    max_size=12,
).map(lambda parts: "\r\n".join(parts).encode("utf-8", "surrogatepass"))


@settings(max_examples=300, deadline=None)
@given(st.one_of(lines, st.binary(max_size=200)), st.text(max_size=20))
def test_any_other_input_is_read_or_refused(data: bytes, header: str) -> None:
    for read in (
        lambda: read_fragment(data),
        lambda: read_offer(data, {}),
        lambda: read_offer(b"v=0\r\n" + data, {"video": "ignore"}),
        lambda: check_if_match(header, '"e"'),
        lambda: [read_candidate(line) for line in data.decode("utf-8", "replace").splitlines()],
    ):
        with suppress(RequestError):
            read()
