"""Beside pylibsrtp's own way: the same bytes, the same refusals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pylibsrtp import Error, Policy, Session

from media.webrtc.aiortc_internals.srtp import SrtpStream

HEADER = b"\x80\x60\x00\x01\x00\x00\x03\xc0\x00\x00\x00\x07"
KEY = bytes(range(30))


def session(kind: int) -> Session:
    return Session(Policy(key=KEY, ssrc_type=kind))


def sends() -> Session:
    return session(Policy.SSRC_ANY_OUTBOUND)


def hears() -> Session:
    return session(Policy.SSRC_ANY_INBOUND)


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=5))
def test_packets_are_pylibsrtps(payloads: list[bytes]) -> None:
    ours, theirs, back = SrtpStream(sends()), sends(), SrtpStream(hears())
    for number, payload in enumerate(payloads):
        packet = HEADER[:2] + number.to_bytes(2, "big") + HEADER[4:] + payload
        protected = ours.protect(packet)
        assert protected == theirs.protect(packet)
        assert back.unprotect(protected) == packet


def test_a_session_has_one_memory_for_both_ways_of_using_it() -> None:
    one, other = sends(), hears()
    first, second = SrtpStream(one).protect(HEADER), one.protect_rtcp(b"\x80\xc9\0\1\0\0\0\7")
    assert other.unprotect_rtcp(second)[:8] == b"\x80\xc9\0\1\0\0\0\7"
    assert SrtpStream(other).unprotect(first) == HEADER


def test_what_is_forged_or_comes_twice_is_refused_and_nothing_else_is() -> None:
    packet, back = SrtpStream(sends()).protect(HEADER + b"sound"), SrtpStream(hears())
    for wrong in (packet[:-1] + bytes([packet[-1] ^ 1]), packet[:11], b""):
        with pytest.raises(Error):
            back.unprotect(wrong)
    assert back.unprotect(packet) == HEADER + b"sound"
    with pytest.raises(Error):
        back.unprotect(packet)


def test_a_refusal_says_why_in_pylibsrtps_words() -> None:
    packet = SrtpStream(sends()).protect(HEADER + b"sound")
    back = SrtpStream(hears())
    back.unprotect(packet)
    for wrong in (packet[:-1] + b"?", packet[:11], packet):
        with pytest.raises(Error) as theirs:
            back._kept.unprotect(wrong)
        with pytest.raises(Error) as ours:
            back.unprotect(wrong)
        assert str(ours.value) == str(theirs.value) != ""


def test_what_is_longer_than_pylibsrtps_memory_stays_out_of_it() -> None:
    with pytest.raises(ValueError, match="1500 at most"):
        SrtpStream(hears()).unprotect(HEADER + bytes(1489))
    with pytest.raises(ValueError, match="1356 at most"):
        SrtpStream(sends()).protect(HEADER + bytes(1345))


def test_the_longest_packet_fits_with_what_encryption_adds() -> None:
    packet = HEADER + bytes(1344)
    assert SrtpStream(hears()).unprotect(SrtpStream(sends()).protect(packet)) == packet
