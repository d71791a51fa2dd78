"""The server goes on if mDNS does not work."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
import zeroconf
import zeroconf.asyncio

from server.net.mdns import mdns_service

ERRORS: Sequence[Exception] = (
    zeroconf.NonUniqueNameException(),
    zeroconf.NotRunningException(),
    OSError("no multicast"),
)


class Responder:
    """A fake of the library's class without the methods that may not be called.

    A goodbye for a name that was not registered would remove another server's.
    """

    def __init__(self, error: Exception | None) -> None:
        self.error, self.registered, self.is_closed = error, list[Any](), False

    async def async_register_service(self, info: Any) -> None:
        if self.error is not None:
            raise self.error
        self.registered.append(info)

    async def async_close(self) -> None:
        self.is_closed = True


def announce(monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> Responder:
    made = Responder(error)
    monkeypatch.setattr(zeroconf.asyncio, "AsyncZeroconf", lambda: made)

    async def main() -> None:
        async with mdns_service(10300, ()):
            assert not made.is_closed

    asyncio.run(main())
    assert made.is_closed
    return made


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_a_failed_announcement_is_logged_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    announce(monkeypatch, error)
    (line,) = [record.getMessage() for record in caplog.records if "mDNS" in record.getMessage()]
    assert type(error).__name__ in line


@pytest.mark.parametrize("name", ["host", "h" * 64, "a b", "tw\xf6", ""])
def test_any_host_name_is_announced(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: name)
    (info,) = announce(monkeypatch, None).registered
    assert info.type == "_wyoming._tcp.local."


def test_a_host_name_that_cannot_be_announced_does_not_stop_the_server(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "tw\xf6\xf6" * 20)

    async def main() -> None:
        async with mdns_service(10300, ()):
            pass

    asyncio.run(main())
    assert "not announced" in caplog.text
