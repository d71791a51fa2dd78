"""The expiry of consent, in virtual time."""

import asyncio
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aioice import Connection
from aioice.stun import TransactionTimeout

from media.webrtc.ice import consent
from tests.loop import run_virtual


class Silent:
    """A connection whose other side answers no check; each check times out after 3.5 s."""

    remote_password = "secret"

    def __init__(self) -> None:
        self.query_consent: Any = None
        self._query_consent_task: Any = None
        pair = SimpleNamespace(protocol=self, remote_addr=("192.0.2.1", 9))
        self._nominated = {1: pair}
        self.closed_at: float | None = None

    def build_request(self, pair: object, *, nominate: bool) -> None:
        assert not nominate

    async def request(self, *_: object, **__: object) -> None:
        await asyncio.sleep(3.5)
        raise TransactionTimeout

    async def close(self) -> None:
        self.closed_at = asyncio.get_running_loop().time()


@pytest.mark.parametrize("chance", [0, 0.4, 0.9, 1])
def test_consent_expires_in_time_even_between_two_checks(
    monkeypatch: pytest.MonkeyPatch, chance: float
) -> None:
    monkeypatch.setattr(random, "random", lambda: chance)

    async def scene() -> None:
        silent = Silent()
        consent.renew_consent(cast(Connection, silent))
        began_at = asyncio.get_running_loop().time()
        await silent.query_consent()
        assert silent.closed_at == pytest.approx(began_at + consent.EXPIRY_S)

    run_virtual(scene())
