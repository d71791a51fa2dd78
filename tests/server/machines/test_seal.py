"""Requests between machines: whoever lacks the key, or changes anything, is refused."""

from dataclasses import replace

import pytest

from core.errors import Forbidden
from server.machines.seal import MAX_SKEW_S, MachineEnvelope, SealedRequest, SharedKey

FROM = MachineEnvelope(71, "https", "192.168.1.7")
ASKED = SealedRequest("POST", "/whip?language=de", "ab" * 32)


def test_a_sealed_request_is_opened_by_the_same_key() -> None:
    sealed = SharedKey(b"k" * 32).seal(FROM, ASKED, 1000.0)
    assert SharedKey(b"k" * 32).open(sealed, ASKED, 1000.0 + MAX_SKEW_S) == FROM


def test_a_client_without_an_address_is_possible() -> None:
    key, unknown = SharedKey(b"k" * 32), replace(FROM, remote="")
    assert key.open(key.seal(unknown, ASKED, 5.0), ASKED, 5.0) == unknown


@pytest.mark.parametrize(
    "asked",
    [
        replace(ASKED, method="DELETE"),
        replace(ASKED, target="/whip"),
        replace(ASKED, receiver="cd" * 32),
    ],
)
def test_a_seal_opens_nothing_else(asked: SealedRequest) -> None:
    key = SharedKey(b"k" * 32)
    with pytest.raises(Forbidden, match="not signed"):
        key.open(key.seal(FROM, ASKED, 1000.0), asked, 1000.0)


@pytest.mark.parametrize("index", range(6))
def test_no_word_can_be_changed(index: int) -> None:
    key = SharedKey(b"k" * 32)
    words = key.seal(FROM, ASKED, 1000.0).split(" ")
    words[index] = words[index] + "1"
    with pytest.raises(Forbidden, match="not signed"):
        key.open(" ".join(words), ASKED, 1000.0)


@pytest.mark.parametrize("sealed", ["", "x", "1 2 3 4 5 6", "ü " * 6, " " * 9])
def test_nonsense_is_refused(sealed: str) -> None:
    with pytest.raises(Forbidden, match="not signed"):
        SharedKey(b"k" * 32).open(sealed, ASKED, 1000.0)


def test_another_key_is_refused() -> None:
    sealed = SharedKey(b"k" * 32).seal(FROM, ASKED, 1000.0)
    with pytest.raises(Forbidden, match="not signed") as caught:
        SharedKey(b"l" * 32).open(sealed, ASKED, 1000.0)
    assert caught.value.code == "machine_not_authenticated"


@pytest.mark.parametrize("skew_s", [MAX_SKEW_S + 0.1, -MAX_SKEW_S - 0.1])
def test_an_old_or_early_request_is_refused(skew_s: float) -> None:
    key = SharedKey(b"k" * 32)
    with pytest.raises(Forbidden, match="old, or early"):
        key.open(key.seal(FROM, ASKED, 1000.0), ASKED, 1000.0 + skew_s)


def test_a_request_is_accepted_once_and_forgotten_later() -> None:
    key = SharedKey(b"k" * 32)
    sealed = key.seal(FROM, ASKED, 1000.0)
    key.open(sealed, ASKED, 1000.0)
    with pytest.raises(Forbidden, match="sent before"):
        key.open(sealed, ASKED, 1010.0)
    key.open(key.seal(FROM, ASKED, 1061.0), ASKED, 1061.0)
    assert len(key._seen) == 1


def test_the_key_is_not_shown() -> None:
    assert "kkk" not in repr(SharedKey(b"k" * 32))
