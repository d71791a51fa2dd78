"""Defects that the fuzzer must find: an error, a hang and a leak, each triggered by a word."""

from tests.fuzz.target import Target

kept: list[bytes] = []


def fails(data: bytes) -> None:
    assert not data.startswith(b"fail")


def hangs(data: bytes) -> None:
    while data.startswith(b"hang"):
        pass


def leaks(data: bytes) -> None:
    if data.startswith(b"leak"):
        kept.append(b"x" * 50_000_000)


TARGETS = tuple(
    Target(name=one.__name__, one_input=one, seeds=(b"good",), words=("fail", "hang", "leak"))
    for one in (fails, hangs, leaks)
)
