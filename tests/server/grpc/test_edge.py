"""Status codes of errors, and the addresses of callers."""

import grpc
import pytest

from core.errors import EngineCrashed, EngineTimeout, OverloadedError, PayloadTooLarge, RequestError
from server.grpc.edge import address_of_peer, status_of


def test_each_error_has_a_status_code() -> None:
    for error, status in (
        (RequestError("x"), grpc.StatusCode.INVALID_ARGUMENT),
        (PayloadTooLarge("x"), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (OverloadedError("x", retry_after_s=1), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (OverloadedError("x", retry_after_s=1, code="draining"), grpc.StatusCode.UNAVAILABLE),
        (EngineCrashed("asr", "x"), grpc.StatusCode.UNAVAILABLE),
        (EngineTimeout("asr", "x"), grpc.StatusCode.DEADLINE_EXCEEDED),
    ):
        assert status_of(error) is status


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:127.0.0.1:5000", "127.0.0.1"),
        ("ipv6:%5B::1%5D:5000", "::1"),
        ("ipv6:[fd00::7]:5000", "fd00::7"),
        ("unix:", ""),
    ],
)
def test_the_address_of_a_peer(peer: str, address: str) -> None:
    assert address_of_peer(peer) == address
